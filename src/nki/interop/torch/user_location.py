"""Which line of the user's code led here, when PyTorch's own frames lie in between."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import torch
import typing_extensions

from nki.core.source import Location, Locator

_TORCH = str(Path(torch.__file__).parent) + "/"
_WRAPPERS = (contextlib.__file__, typing_extensions.__file__, threading.__file__)
"""Files whose functions stand between the user's line and one of PyTorch's that they decorate, or start in a thread."""


def is_torch(file: str) -> bool:
    """Whether a file is one of PyTorch's."""
    return file.startswith(_TORCH)


def user_line() -> Location:
    """The innermost call site that belongs neither to this package nor to PyTorch."""
    frames = Locator().capture().frames
    own = (frame for frame in frames if not (is_torch(frame.file) or frame.file in _WRAPPERS))
    return Location(tuple(own)[:1])
