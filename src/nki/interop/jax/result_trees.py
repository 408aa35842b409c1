"""The tree of a kernel's result: its views in order, and the same tree with something else in their places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nki.core.tensor import View


def leaves(tree: Any, values: Any = None) -> list[Any]:
    """The views of a tree; or, of another tree of the same form, what stands in their places."""
    values = tree if values is None else values
    if isinstance(tree, View):
        return [values]
    if isinstance(tree, tuple | list):
        return [leaf for item, value in zip(tree, values, strict=True) for leaf in leaves(item, value)]
    if isinstance(tree, dict):
        return [leaf for key, item in tree.items() for leaf in leaves(item, values[key])]
    return []


def filled(tree: Any, values: Iterator[Any]) -> Any:
    """A tree with values in place of its views; what is no view stays."""
    if isinstance(tree, View):
        return next(values)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(filled(item, values) for item in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(filled(item, values) for item in tree)
    if isinstance(tree, dict):
        return {key: filled(item, values) for key, item in tree.items()}
    return tree
