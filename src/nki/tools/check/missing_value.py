"""What stands for a value that a statement could not compute, so that the statements after it can be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Missing:
    """Takes part in everything, and always comes out as itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing is kept."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def _itself(self: Missing, *others: Any) -> Missing:
    return self


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(Missing, f"__{_name}__", _itself)
    setattr(Missing, f"__r{_name}__", _itself)
for _name in ("neg", "pos", "abs", "invert", "lt", "le", "gt", "ge", "enter"):
    setattr(Missing, f"__{_name}__", _itself)

MISSING = Missing()


def is_missing(value: Any) -> bool:
    """Whether a value is missing, or a list, tuple or dict with one that is."""
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, Missing) or (isinstance(value, list | tuple) and any(is_missing(item) for item in value))
