"""What masks leave of tiles: of a value, and of the operands of an instruction together."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from nki.tools.migrate.masks import Bounds, Cut
from nki.tools.migrate.rewriting.context import Context

Cuts = dict[int, Cut]
"""What is left of each axis: 0 is the partitions', -1 the last one, and so on."""

_REDUCTIONS = {f"nl.{name}" for name in ("max", "min", "sum", "mean", "var", "prod", "all")}


def bounds(c: Context, node: cst.BaseExpression, *, joined: bool = False) -> Bounds:
    """The mask of a call; `joined` says that it may join axes."""
    if isinstance(node, cst.Call):
        for arg in node.args:
            if arg.keyword is not None and arg.keyword.value == "mask":
                return c.masks.read(arg.value, joined=joined)
    return Bounds()


def extents(c: Context, node: cst.BaseExpression) -> Cuts:
    """What is left of a tile that comes from masked instructions."""
    match node:
        case cst.Name():
            return c.extents.get(node.value, {})
        case cst.Subscript():
            return extents_of_part(c, node)
        case cst.Call():
            return _extents_of_call(c, node)
        case cst.BinaryOperation():
            return {**extents(c, node.right), **extents(c, node.left)}
        case cst.UnaryOperation():
            return extents(c, node.expression)
        case cst.Comparison(comparisons=[target]):
            return {**extents(c, target.comparator), **extents(c, node.left)}
    return {}


def _extents_of_call(c: Context, call: cst.Call) -> Cuts:
    function = c.names.canonical(call.func)
    found = dict(bounds(c, call, joined=True).axes)
    if function == "nl.load":
        return found
    if function == "nl.matmul":
        return {}
    if isinstance(call.func, cst.Attribute) and not function:
        return extents(c, call.func.value) if c.facts.one(call) is not None else {}
    if not function.startswith(("nl.", "nisa.")):
        return {}
    for arg in call.args:
        if arg.keyword is None or arg.keyword.value not in ("mask", "dtype"):
            found = {**extents(c, arg.value), **found}
    return only(found, 0) if function in _REDUCTIONS else found


def extents_of_part(c: Context, node: cst.Subscript) -> Cuts:
    """What is left of a part of a tile: the axes that it has whole."""
    own = extents(c, node.value) if isinstance(node.value, cst.Name) else {}
    if not own:
        return {}
    fact, base = c.facts.one(node), c.facts.one(node.value)
    if fact is None or base is None:
        return {}
    found = {}
    for key, cut in own.items():
        if key == 0:
            if fact.shape and fact.shape[0] == base.shape[0]:
                found[0] = cut
        elif fact.shape[key] == base.shape[key]:
            found[key] = cut
    return found


def joint(c: Context, tiles: Iterable[cst.BaseExpression], mask: Bounds) -> Cuts:
    """What a mask and the operands leave together."""
    found = dict(mask.axes)
    for node in tiles:
        found = meet(c, found, extents(c, node))
    return found


def meet(c: Context, one: Cuts, other: Cuts) -> Cuts:
    """What is left of axes where two cuts are."""
    found = {**other, **one}
    for key in one.keys() & other.keys():
        a, b = one[key], other[key]
        low = a.low if a.low == b.low else _larger(c, key, a.low, b.low)
        found[key] = Cut(low, a.high if a.high == b.high else _smaller(c, key, a.high, b.high))
    return found


def _smaller(c: Context, key: int, one: str, other: str) -> str:
    if one.isdecimal() and other.isdecimal():
        return str(min(int(one), int(other)))
    if other in c.parts_of_bound(one):
        return one
    return other if one in c.parts_of_bound(other) else c.bound(key, f"min({one}, {other})")


def _larger(c: Context, key: int, one: str, other: str) -> str:
    if one.isdecimal() and other.isdecimal():
        return str(max(int(one), int(other)))
    return c.bound(key, f"max({one}, {other})")


def only(cuts: Cuts, key: int) -> Cuts:
    """The cut of one axis."""
    return {k: cut for k, cut in cuts.items() if k == key}


def without(cuts: Cuts, key: int) -> Cuts:
    """The cuts of all other axes."""
    return {k: cut for k, cut in cuts.items() if k != key}


def cut_sizes(c: Context, sizes: list[str], cuts: Cuts) -> list[str]:
    """The sizes of what is left; those of a tile that was cut in this way already are as they are."""
    found = list(sizes)
    for key, cut in cuts.items():
        at = 0 if key == 0 else len(found) + key
        if not 0 <= at < len(found):
            continue
        owner = found[at].removesuffix(f".shape[{at}]")
        if owner == found[at] or c.extents.get(owner, {}).get(key) != cut:
            found[at] = cut.high
    return found
