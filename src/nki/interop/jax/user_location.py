"""Where the user's code is, when JAX stands between it and the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

import nki
from nki.core.errors import NkiError
from nki.core.source import Frame, Location, Locator

_PACKAGES = tuple(f"{Path(jax.__file__).parent.parent}/{name}/" for name in ("jax", "jaxlib"))
_OWN = f"{Path(nki.__file__).parent}/"


def user_site() -> Location:
    """The innermost call site outside this package and JAX; unknown if there is none."""
    frames = Locator().capture().frames
    return Location(tuple(frame for frame in frames if not is_of_jax(frame.file))[:1])


def is_of_jax(file: str | None) -> bool:
    """Whether a source file is one of JAX's own."""
    return file is not None and file.startswith(_PACKAGES)


def site_of(traceback: Any) -> Location:
    """The innermost call site outside this package and JAX in an equation's traceback, else that of the user's call."""
    if traceback is not None:
        for code, instruction in zip(*traceback.raw_frames(), strict=True):
            file = code.co_filename
            if not is_of_jax(file) and not file.startswith((_OWN, "<frozen")):
                line, column, end_line, end_column = type(traceback).code_addr2location(code, instruction)
                return Location((Frame(file, code.co_name, line, column, end_line, end_column),))
    return user_site()


def move_out(error: NkiError, definition: Location) -> None:
    """Let an error that points into JAX point at the user's call; where there is none, at the kernel's definition."""
    frame = error.location.frame
    if frame is None or is_of_jax(frame.file):
        site = user_site()
        error.location = site if site.frames else definition
