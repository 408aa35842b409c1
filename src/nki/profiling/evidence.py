"""What is known about the times that the model predicts for a target, in words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nki.core.source import here
from nki.report import NkiWarning
from nki.spec.rule import Finding
from nki.target.accuracy import bound_by, interval, measured_kernels
from nki.target.load import load_target, target_names
from nki.target.model import Target
from nki.target.own import base_of, own_file

_TOLD: set[str] = set()
"""Targets of which this process was told."""

_SHARE = 0.9
"""The part of the measured kernels that texts call nine of ten."""


@dataclass(frozen=True, slots=True)
class Expected:
    """How far off the predicted time of a program may be.

    Attributes:
        percent: of the measured time, in either direction, that `share` of the measured kernels of the kind did not
            pass; None if nothing is known of programs like this one.
        share: of these kernels.
        points: published times of such kernels.
        kind: which kernels, in words; "" if nothing is known.
        text: all of it as a sentence without its full stop.
    """

    percent: float | None
    share: float
    points: int
    kind: str
    text: str


def expected_error(target: Target, busy: Mapping[str, float], makespan: float, collectives: bool) -> Expected:
    """What published times say about a prediction, by what bounds the program.

    Args:
        busy: ns that each unit works.
        makespan: ns.
        collectives: whether ranks exchange data in it.
    """
    if not target.validated:
        return _unknown(f"whole kernel on {target.name}")
    if collectives:
        return _unknown("kernel that has collectives")
    bound = bound_by(busy, makespan)
    if bound == "gpsimd" and not any(point.bound == bound for point in measured_kernels()):
        return _unknown("kernel that GpSimd bounds")
    found = interval(target.name, bound, _SHARE)
    if found is None:
        return _unknown(f"sufficient number of kernels on {target.name}")
    why = _wider(found.kind, target.name)
    text = f"within {found.percent:.0f} % in nine of ten measured {found.kind} ({found.points} published times{why})"
    return Expected(found.percent, found.share, found.points, found.kind, text)


def _wider(kind: str, target: str) -> str:
    """Why kernels that are not of the program's own kind are spoken of."""
    if f"kernels on {target}" not in kind:
        return f", too few on {target}"
    return ", too few of the same kind" if kind == f"kernels on {target}" else ""


def _unknown(what: str) -> Expected:
    return Expected(
        None, 0.0, 0, "", f"the model was compared with no {what}, so that nothing says how far off this is"
    )


def evidence(name: str, validated: bool) -> str:
    """What the timing model of a target was compared with, and which target to choose if it was no kernel.

    Args:
        name: of the target.
        validated: whether its model was compared with published times of kernels.
    """
    if file := own_file(name):
        return f"simulated, with coefficients of {file} for {base_of(name)}"
    if validated:
        return f"simulated, the timing model of {name} was compared with published measurements"
    measured = measured_target()
    return (
        f"simulated, the timing model of {name} was NOT compared with any kernel, that of {measured} was "
        f"({_chosen(measured)})"
    )


def known_error(target: str, validated: bool, accuracy: Mapping[str, Any]) -> str:
    """What is known of how far off the time of a profile may be, from what the profile says of it."""
    return f"simulated: {accuracy['text']}" if validated else evidence(target, validated)


def excess(percent: float | None) -> float:
    """The part of a predicted time by which it is too long if it is off by so many percent (`Expected`).

    An advice that saves less may speak of what is not there. 0 if nothing is known.
    """
    return percent / (100.0 + percent) if percent is not None else 0.0


def tell_of_unmeasured(target: Target) -> None:
    """At the first time that this process predicts for a target with which no kernel was compared, say so in its log.

    It is no warning of Python: where these are errors, a right call would fail because of its target.
    """
    if target.validated or target.toy or own_file(target.name) or target.name in _TOLD:
        return
    _TOLD.add(target.name)
    measured = measured_target()
    finding = Finding(
        "timing.unmeasured",
        "warning",
        f"times of {target.name} are estimates that were not compared with the time of any kernel",
        f"the model of {target.title} is that of an earlier generation with other clocks and rates; "
        f"`nki targets {target.name} --accuracy` lists what was measured on it",
        "docs/timing.md",
        f"for a model that was compared with published measurements, choose {measured} ({_chosen(measured)})",
        here(),
        {"target": target.name},
    )
    logging.getLogger("nki").warning("%s", NkiWarning(finding))


def _chosen(name: str) -> str:
    """How a target is chosen."""
    return f"NEURON_PLATFORM_TARGET_OVERRIDE={name}, or --target {name}"


def measured_target() -> str:
    """The newest target whose model was compared with measurements."""
    found = [target for target in map(load_target, target_names()) if target.validated]
    return max(found, key=lambda target: target.generation).name
