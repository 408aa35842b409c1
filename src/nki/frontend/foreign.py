"""Calls between languages: kernels of NKI get tensors of NKI, whoever calls them, and the caller gets his own back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from nki.core.nki_tensor import NkiTensor


@runtime_checkable
class Foreign(Protocol):
    """A tensor of another language, which stands for one of NKI."""

    def nki_tensor(self) -> NkiTensor:
        """The elements that it shows."""

    @staticmethod
    def of(tensor: NkiTensor, /) -> Any:
        """The tensor of that language for one of NKI."""


def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a function of NKI returns for arguments of any language; results are tensors of the caller's."""
    if all(type(value) is NkiTensor for value in (*args, *kwargs.values())):
        return function(*args, **kwargs)
    given: list[Foreign] = []

    def own(value: Any) -> Any:
        if not isinstance(value, Foreign):
            return value
        given.append(value)
        return value.nki_tensor()

    args, kwargs = map_tree((args, dict(kwargs)), own)
    result = function(*args, **kwargs)
    if not given:
        return result
    return map_tree(result, lambda value: given[0].of(value) if isinstance(value, NkiTensor) else value)


def map_tree(value: Any, change: Callable[[Any], Any]) -> Any:
    """Lists, tuples and dictionaries of the same form with something else in the place of each leaf."""
    if isinstance(value, dict):
        return {key: map_tree(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [map_tree(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return change(value)
