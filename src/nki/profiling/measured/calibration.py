"""A copy of a target's coefficients with those that a measured profile determines, as a file that is a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nki.core.least_squares import Coefficient
from nki.profiling.errors import unwritable
from nki.profiling.measured.comparison import Comparison
from nki.profiling.measured.fit import Fit, fit
from nki.profiling.measured.observations import Trips
from nki.profiling.measured.refusals import refused
from nki.spec.program import Program
from nki.store.files import write_whole
from nki.target.model import Target
from nki.target.names import TIMING
from nki.target.own import base_of, leaf_text, own_file, read_own
from nki.version import version

_UNITS = {"cycles": "cycles", "bytes_per_ns": "bytes per ns", "ns": "ns"}


def calibrate(comparison: Comparison, programs: Sequence[Program], target: Target, trips: Trips | None = None) -> Fit:
    """Fit the coefficients of a target to what was measured.

    Args:
        comparison: of the profile of these programs.
        programs: the compiled kernel, a program for each core.
        target: whose coefficients are copied where nothing is determined.
        trips: of loops, as the profile had them.

    Raises:
        ArtifactError: the matched instructions determine no coefficient (``measured.calibrate``).
    """
    found = fit(comparison.matched, comparison.capture, programs, target, trips)
    if not any(each.fitted for each in found.coefficients):
        seen = f"{len(comparison.matched.pairs)} matched instructions with {len(found.observations)} observations"
        message = f"{seen} determine no coefficient of the timing model"
        raise refused("measured.calibrate", message)
    return found


def write_calibration(path: Path, found: Fit, comparison: Comparison, target: Target) -> None:
    """Write the file; it appears whole or not at all. Raises UsageError "profile.write"."""
    try:
        write_whole(path.resolve(), calibration_text(found, comparison, target).encode())
    except OSError as problem:
        raise unwritable(path, problem) from problem


def calibration_text(found: Fit, comparison: Comparison, target: Target) -> str:
    """TOML with every coefficient: its value, unit and meaning, and where it comes from."""
    capture, kernel = comparison.capture, comparison.profile.about.kernel
    simulated = ", which is a simulation" if capture.simulated else ""
    lines = [
        f"# Coefficients of {target.name}, fitted to a profile of {_plain(kernel)}{simulated}.",
        f"# Written by nki {version()}; docs/measured.md says how it is used.",
        "",
        f"base = {json.dumps(base_of(target.name))}",
        "",
    ]
    origin = f"to {_plain(capture.name or capture.folder.name)}, a profile of {_plain(kernel)}{simulated}"
    for each in found.coefficients:
        lines.append(leaf_text(each.name, _leaf(each, origin, target)))
    if own_file(target.name):
        kept = read_own(target.name).collective
        lines += ["", "[collective]", *(leaf_text(name, leaf) for name, leaf in kept.items())] if kept else []
    return "\n".join(lines) + "\n"


def _leaf(each: Coefficient, origin: str, target: Target) -> dict[str, Any]:
    told: dict[str, Any] = {"value": float(f"{each.value:.6g}"), "unit": _unit(each.name)}
    known = target.provenance(f"timing.{each.name}")
    if each.fitted:
        told["fitted"] = f"{origin}: {each.observations} kinds of observations, +-{each.error:.1%}"
    elif known.source:
        told["source"] = known.source
    else:
        told["estimate"] = known.estimate
    told["meaning"] = TIMING[each.name]
    return told


def _unit(name: str) -> str:
    return next((text for ending, text in _UNITS.items() if name.endswith(ending)), "ratio")


def _plain(text: str) -> str:
    """A name in a comment."""
    return "".join(letter for letter in text if letter.isprintable())[:200]
