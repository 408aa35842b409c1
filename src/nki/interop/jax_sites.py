"""Where the user's code is, when JAX stands between it and the kernel."""

from __future__ import annotations

from pathlib import Path

import jax

from nki.core.errors import NkiError
from nki.core.source import Location, Locator

_PACKAGES = tuple(f"{Path(jax.__file__).parent.parent}/{name}/" for name in ("jax", "jaxlib"))


def user_site() -> Location:
    """The innermost call site outside this package and JAX; unknown if there is none."""
    frames = Locator().capture().frames
    return Location(tuple(frame for frame in frames if not frame.file.startswith(_PACKAGES))[:1])


def move_out(error: NkiError, definition: Location) -> None:
    """Let an error that points into JAX point at the user's call; where there is none, at the kernel's definition."""
    frame = error.location.frame
    if frame is None or frame.file.startswith(_PACKAGES):
        site = user_site()
        error.location = site if site.frames else definition
