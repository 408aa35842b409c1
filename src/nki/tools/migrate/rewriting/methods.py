"""Methods and attributes of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context

Args = Sequence[cst.Arg]


def method(c: Context, call: cst.Call) -> str | None:
    """A call of a method of a tile; None for any other call."""
    if not isinstance(call.func, cst.Attribute) or c.facts.kind(call.func.value) != "tensor":
        return None
    change = _METHODS.get(call.func.attr.value)
    return None if change is None else change(c, c.code(call.func.value), call.args)


def _shape(c: Context, args: Args) -> str:
    """A shape that is given as one argument or as several."""
    if len(args) == 1:
        return c.code(args[0].value)
    return f"({', '.join(c.code(arg.value) for arg in args)})"


def _broadcast_to(c: Context, tile: str, args: Args) -> str:
    return f"{c.nl('broadcast_to')}({tile}, {_shape(c, args)})"


def _astype(c: Context, tile: str, args: Args) -> str:
    return f"{c.nl('copy')}({tile}, dtype={c.code(args[0].value)})"


def _expand_dims(c: Context, tile: str, args: Args) -> str:
    return f"{tile}.expand_dim({c.code(args[0].value)})"


def _reshape(c: Context, tile: str, args: Args) -> str:
    return f"{tile}.reshape({_shape(c, args)})"


def _assert_shape(c: Context, tile: str, args: Args) -> str:
    return tile


_METHODS: dict[str, Callable[[Context, str, Args], str]] = {
    "broadcast_to": _broadcast_to,
    "astype": _astype,
    "expand_dims": _expand_dims,
    "reshape": _reshape,
    "assert_shape": _assert_shape,
}


def attribute(c: Context, node: cst.Attribute) -> str | None:
    """An attribute of a tile with blocks, or a name of an engine; None for what stays."""
    owner = c.facts.one(node.value)
    if owner is not None and owner.kind == "tensor" and owner.blocks:
        if node.attr.value == "dtype":
            return f"{c.code(node.value)}{'[0]' * owner.blocks}.dtype"
        if node.attr.value == "shape":
            return f"({', '.join(str(size) for size in owner.shape)})"
    name = c.names.canonical(node)
    if name.startswith("ncc."):
        raise Unmigrated(f"{name} has no counterpart")
    package, _, own = name.partition(".")
    if package == "nisa" and own.endswith("_engine") and own != "unknown_engine":
        return c.nisa(f"engine.{own.removesuffix('_engine')}")
    return None
