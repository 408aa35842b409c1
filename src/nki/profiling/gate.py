"""The gate to profiles: passes and the timing model are loaded when the first profile is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nki.profiling.optional_formats import optional_module
from nki.spec.kept_load import KeptLoad
from nki.spec.model_kernels import CoreKernels
from nki.spec.program import Program
from nki.target.model import Target
from nki.topology import instance_of, load_instance

if TYPE_CHECKING:
    from rich.console import Console

    from nki.profiling.measured.comparison import Comparison
    from nki.profiling.measured.fit import Fit
    from nki.profiling.ranks.record import StepProfile
    from nki.profiling.record import Profile
    from nki.timing.ranks.step import Step


def profile_programs(
    programs: Sequence[Program],
    target: Target,
    trips: Sequence[Mapping[int, float]] | None = None,
    kernels: Sequence[CoreKernels] = (),
    *,
    imitate: str = "",
    kept_loads: Sequence[KeptLoad] = (),
) -> Profile:
    """See `nki.profiling.build.profile_programs`.

    Args:
        imitate: `nki.options.Options.imitate` of the compilation; empty if nobody knows.
        kept_loads: that it left out.
    """
    made: Profile = importlib.import_module("nki.profiling.build").profile_programs(programs, target, trips, kernels)
    about = replace(made.about, imitate=imitate, kept_loads=[load.to_json() for load in kept_loads])
    return replace(made, about=about)


def profile_ranks(step: Step, instance: str, target: Target, name: str, notes: Sequence[str] = ()) -> StepProfile:
    """See `nki.profiling.ranks.build.profile_step`; without an instance that of the target."""
    module = importlib.import_module("nki.profiling.ranks.build")
    found = load_instance(instance) if instance else instance_of(target)
    made: StepProfile = module.profile_step(step, found, target, name, notes)
    return made


def load_step(folder: Path) -> StepProfile:
    """See `nki.profiling.ranks.record.StepProfile.load`."""
    loaded: StepProfile = importlib.import_module("nki.profiling.ranks.record").StepProfile.load(folder)
    return loaded


def show_step(console: Console, profile: StepProfile) -> None:
    """See `nki.profiling.ranks.summary.show_step`."""
    importlib.import_module("nki.profiling.ranks.summary").show_step(console, profile)


def show_sizes(console: Console, profiles: Sequence[StepProfile]) -> None:
    """See `nki.profiling.ranks.summary.show_sizes`."""
    importlib.import_module("nki.profiling.ranks.summary").show_sizes(console, profiles)


def load_profile(folder: Path) -> Profile:
    """See `nki.profiling.record.Profile.load`."""
    loaded: Profile = importlib.import_module("nki.profiling.record").Profile.load(folder)
    return loaded


def compare_measured(profile: Profile, folder: Path) -> Comparison:
    """See `nki.profiling.measured.comparison.compare`. Raises UsageError "profile.extra" without pyarrow."""
    found: Comparison = optional_module("nki.profiling.measured.comparison", "pyarrow").compare(profile, folder)
    return found


def measured_profile(comparison: Comparison) -> Profile:
    """See `nki.profiling.measured.as_profile.measured_profile`."""
    made: Profile = importlib.import_module("nki.profiling.measured.as_profile").measured_profile(comparison)
    return made


def calibrate(comparison: Comparison, programs: Sequence[Program], target: Target, path: Path) -> Fit:
    """Fit the coefficients of a target and write them; see `nki.profiling.measured.calibration`."""
    module = importlib.import_module("nki.profiling.measured.calibration")
    found: Fit = module.calibrate(comparison, programs, target)
    module.write_calibration(path, found, comparison, target)
    return found


def show_measured(console: Console, comparison: Comparison, found: Fit | None, path: Path | None) -> None:
    """See `nki.profiling.measured.show`."""
    module = importlib.import_module("nki.profiling.measured.show")
    module.show_comparison(console, comparison)
    if found is not None:
        module.show_fit(console, found, path)
