"""What the frameworks' modules say where the framework is not installed."""

from __future__ import annotations

from nki.core.errors import MissingError, NkiError
from nki.core.install import install_extra
from nki.core.source import Location, Locator


def missing(framework: str, error: ModuleNotFoundError) -> NkiError | ModuleNotFoundError:
    """The error for a framework that is not there; an installed one that lacks a module of its own keeps its error.

    Args:
        framework: name of its module and of the extra that brings it.
        error: what Python raised.
    """
    if error.name != framework:
        return error
    frames = [frame for frame in Locator().capture().frames if not frame.file.startswith("<")]
    return MissingError(
        "install.framework",
        f"nki.interop.{framework} needs {framework}, which is not installed",
        rule="import nki needs no framework; what belongs to one is an extra of the package",
        fix=install_extra(framework),
        location=Location(tuple(frames[:1])),
    )
