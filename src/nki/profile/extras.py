"""The gate to optional packages: formats that need them are loaded when they are asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki.core.errors import UsageError
from nki.core.install import install_extra
from nki.core.source import UNKNOWN

if TYPE_CHECKING:
    from nki.profile.record import Profile


class Formats:
    """Functions that write and read; each loads its module, and that its package."""

    def save(self, profile: Profile, folder: Path) -> None:
        """See `Profile.save`."""
        _module("nki.profile.folder", "pyarrow").save(profile, folder)

    def load(self, folder: Path) -> Any:
        """See `Profile.load`."""
        return _module("nki.profile.folder", "pyarrow").load(folder)

    def explorer(self, profile: Profile, folder: Path) -> None:
        """See `Profile.explorer`."""
        _module("nki.profile.explorer", "pyarrow").write_explorer(profile, folder)

    def perfetto(self, profile: Profile, file: Path) -> None:
        """See `Profile.perfetto`."""
        _module("nki.profile.trace", "perfetto").write_trace(profile, file)


def formats() -> Formats:
    """All of them."""
    return Formats()


def _module(name: str, package: str) -> Any:
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


def unwritable(path: Path, problem: OSError) -> UsageError:
    """The error for a file that cannot be written."""
    return UsageError(
        "profile.write",
        f"{path} cannot be written: {problem.strerror or problem}",
        fix="name a folder that you may write to",
        location=UNKNOWN,
    )
