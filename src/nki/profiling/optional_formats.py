"""The gate to formats: each is loaded when it is asked for, and the optional package that it needs with it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nki.core.errors import UsageError
from nki.core.install import install_extra
from nki.core.source import UNKNOWN

STEP = "step.json"
"""The file of a step in its folder."""


class Formats:
    """Functions that write and read profiles; each loads its module, and that its package."""

    def save(self, profile: Any, folder: Path) -> None:
        """See `Profile.save`."""
        optional_module("nki.profiling.formats.folder", "pyarrow").save(profile, folder)

    def load(self, folder: Path) -> Any:
        """See `Profile.load`."""
        return optional_module("nki.profiling.formats.folder", "pyarrow").load(folder)

    def explorer(self, profile: Any, folder: Path) -> None:
        """See `Profile.explorer`."""
        optional_module("nki.profiling.formats.neuron_explorer", "pyarrow").write_explorer(profile, folder)

    def perfetto(self, profiles: Sequence[Any], file: Path) -> None:
        """See `Profile.perfetto`."""
        optional_module("nki.profiling.formats.perfetto_trace", "perfetto").write_trace(profiles, file)

    def save_step(self, profile: Any, folder: Path) -> None:
        """See `nki.profiling.ranks.record.StepProfile.save`."""
        importlib.import_module("nki.profiling.ranks.file").save(profile, folder)

    def perfetto_step(self, profile: Any, file: Path) -> None:
        """See `nki.profiling.ranks.record.StepProfile.perfetto`."""
        optional_module("nki.profiling.ranks.perfetto_trace", "perfetto").write_trace(profile, file)

    def load_step(self, folder: Path) -> Any:
        """See `nki.profiling.ranks.record.StepProfile.load`."""
        return importlib.import_module("nki.profiling.ranks.file").load(folder)

    def csv(self, profile: Any, folder: Path) -> None:
        """See `Profile.csv`."""
        importlib.import_module("nki.profiling.formats.csv_files").write_csv(profile.tables, folder)


def formats() -> Formats:
    """All of them."""
    return Formats()


def optional_module(name: str, package: str) -> Any:
    """A module that needs a package of an extra. Raises UsageError "profile.extra" without it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        missing = (problem.name or "").partition(".")[0]
        if missing not in (package, "google"):
            raise
        raise UsageError(
            "profile.extra",
            f"this format needs {package}, which is not installed",
            rule="Parquet needs pyarrow, traces need perfetto; summaries and CSV need neither",
            fix=install_extra("profile"),
            location=UNKNOWN,
        ) from None
