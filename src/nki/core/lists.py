"""Lists and tuples of numbers, which kernels take as settings, and which are no tensors."""

from __future__ import annotations

from typing import Any


def is_numbers(value: Any) -> bool:
    """Whether a value is a number, or a list or tuple of nothing but such values."""
    if isinstance(value, list | tuple):
        return bool(value) and all(is_numbers(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def tensor_fix(name: str) -> str:
    """The way out where a list of numbers is used as a tensor."""
    return f"pass np.asarray({name}, np.float32) to the kernel, and load it with nl.load"
