"""Arguments and results as trees of plain constants, with the tensors beside them.

Dynamo traces these functions, so they use nothing that it cannot follow: a result tree is a string of words.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.core.tensor import View

Outline = tuple[Any, ...]
"""``("tensor", n, shape, dtype)``, ``("constant", n)``, or ``(kind, items, ...)`` for containers."""


def outline(value: Any, tensors: list[torch.Tensor], constants: list[Any]) -> Outline:
    """Take a value apart. Symbolic sizes and numbers become plain ones: kernels are compiled for numbers."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1, tuple([operator.index(size) for size in value.shape]), value.dtype)
    if isinstance(value, dict):
        items = tuple([outline(item, tensors, constants) for item in value.values()])
        return ("dict", items, tuple(value.keys()))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        constants.append(type(value))
        place = len(constants) - 1
        return ("named", tuple([outline(item, tensors, constants) for item in value]), place)
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return (kind, tuple([outline(item, tensors, constants) for item in value]))
    if isinstance(value, int) and not isinstance(value, bool):
        value = operator.index(value)
    constants.append(value)
    return ("constant", len(constants) - 1)


def fill(tree: Outline, tensors: Sequence[Any], constants: Sequence[Any]) -> Any:
    """The inverse of `outline`."""
    match tree:
        case ("tensor", int(place), _, _):
            return tensors[place]
        case ("constant", int(place)):
            return constants[place]
        case ("dict", items, keys):
            return dict(zip(keys, (fill(item, tensors, constants) for item in items), strict=True))
        case ("named", items, int(place)):
            return constants[place](*(fill(item, tensors, constants) for item in items))
        case ("tuple", items):
            return tuple(fill(item, tensors, constants) for item in items)
        case ("list", items):
            return [fill(item, tensors, constants) for item in items]
    raise TypeError(f"{tree!r} is no outline")


def tensors_of(tree: Outline) -> list[Outline]:
    """The leaves of an outline that stand for tensors, in order."""
    if tree[0] == "tensor":
        return [tree]
    return [leaf for item in tree[1] for leaf in tensors_of(item)] if tree[0] != "constant" else []


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """A tree with another value in place of every tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(map_tensors(item, change) for item in value)
    return value


def spelled_result(tree: Any, leaves: list[Any], kernel: str) -> str:
    """The words that `rebuilt` reads; `leaves` gets what stands for tensors (views or tensors), in order."""
    if isinstance(tree, View | torch.Tensor):
        leaves.append(tree)
        return "tensor"
    if tree is None:
        return "none"
    if type(tree) in (tuple, list):
        return " ".join([f"{type(tree).__name__}:{len(tree)}", *(spelled_result(x, leaves, kernel) for x in tree)])
    if type(tree) is dict and all(isinstance(key, str) and key.isidentifier() for key in tree):
        words = (f".{key} {spelled_result(item, leaves, kernel)}" for key, item in tree.items())
        return " ".join([f"dict:{len(tree)}", *words])
    raise LaunchError(
        "torch.result",
        f"{kernel} returns {shown(tree)}",
        rule="in a traced graph a kernel returns tensors and None, in tuples, lists and dicts of names",
        fix="return the tensors in a tuple",
    )


def rebuilt(structure: str, results: Sequence[Any]) -> Any:
    """The tree that the words describe, with the results in the place of its tensors."""
    return _read(structure.split(" "), 0, results, 0)[0]


def _read(words: Sequence[str], at: int, results: Sequence[Any], taken: int) -> tuple[Any, int, int]:
    """The tree that starts at a word; with it, the next word and the number of results that are used up."""
    kind, _, rest = words[at].partition(":")
    if kind == "tensor":
        return results[taken], at + 1, taken + 1
    if kind == "none":
        return None, at + 1, taken
    at += 1
    items: list[Any] = []
    keys: list[str] = []
    for _ in range(int(rest)):
        if kind == "dict":
            keys.append(words[at][1:])
            at += 1
        item, at, taken = _read(words, at, results, taken)
        items.append(item)
    if kind == "dict":
        return dict(zip(keys, items, strict=True)), at, taken
    return (tuple(items) if kind == "tuple" else items), at, taken
