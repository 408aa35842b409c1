"""Which line of the user's code led here, when PyTorch's own frames lie in between."""

from __future__ import annotations

from pathlib import Path

import torch

from nki.core.source import Location, Locator

_TORCH = str(Path(torch.__file__).parent) + "/"


def is_torch(file: str) -> bool:
    """Whether a file is one of PyTorch's."""
    return file.startswith(_TORCH)


def user_line() -> Location:
    """The innermost call site that belongs neither to this package nor to PyTorch."""
    frames = Locator().capture().frames
    return Location(tuple(frame for frame in frames if not is_torch(frame.file))[:1])
