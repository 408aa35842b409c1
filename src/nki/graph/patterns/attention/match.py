"""Attention in a model, whichever way it is written: what `attention` in `kernel` is called with instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nki.graph.patterns import Match, NearMiss, Op, Rewriter, Value, known
from nki.graph.patterns.attention.kernel import LETTERS, MOST_FEATURES, MOST_KEYS, PARTITIONS
from nki.graph.patterns.attention.layouts import Dims, Index, NotAligned, Seen, flat, of_shape
from nki.graph.patterns.attention.scores import Attention, Mask, attention_of

_MOST_PIECES = 1 << 12
"""Blocks of 128 queries and 512 keys, each of which takes a dozen instructions."""

_HIDDEN = -3.0e4
"""A score that is so low, or lower, has the weight 0 next to any other: the lowest float16 is among them."""


@dataclass(frozen=True, slots=True)
class _Nest:
    """What the indices of an attention are.

    Attributes:
        shared: queries, keys, values and the result have them.
        groups: queries and the result have them.
    """

    shared: list[Index]
    groups: list[Index]
    query: Index
    key: Index
    head: Index
    features: Index

    def ordered(self, dims: Dims) -> list[Index]:
        """The indices of queries or of the result, slowest first, with that of a single query before the features."""
        order = _order(dims)
        last = self.head if self.head in order else self.features
        return order if self.query in order else [*order[: order.index(last)], self.query, *order[order.index(last) :]]

    def letters(self) -> dict[Index, str]:
        """A letter for each."""
        loops = [*self.shared, *self.groups]
        return {
            **dict(zip(loops, LETTERS, strict=False)),
            self.query: "q",
            self.key: "k",
            self.head: "d",
            self.features: "f",
        }


def match(r: Rewriter, op: Op) -> Match | None:
    """The attention whose last product an operation is, for the kernel `attention`.

    Raises:
        NearMiss: an attention that it does not take.
    """
    return recognise(r, op, _check_limits)


def recognise(r: Rewriter, op: Op, check: Callable[[_Nest], None] | None = None) -> Match | None:
    """The attention whose last product an operation is, of any size, with the facts of `attention`.

    Args:
        check: raises NearMiss for sizes that a kernel does not take.

    Raises:
        NearMiss: others need the weights, or there are several masks.
    """
    found = recognise_shared(r, op, check)
    if found is not None and found.attention.shared:
        raise NearMiss("its weights are used elsewhere, as a derivative does, so that they have to be made anyhow")
    return None if found is None else found.match


@dataclass(frozen=True, slots=True)
class Recognised:
    """An attention, and what its indices are called.

    Attributes:
        match: with the facts of `attention`.
        letters: of each index.
    """

    match: Match
    attention: Attention
    letters: Mapping[Index, str]


def recognise_shared(r: Rewriter, op: Op, check: Callable[[_Nest], None] | None = None) -> Recognised | None:
    """`recognise`, also where others need the weights, with what a gradient is found by."""
    if op.name != "dot_general" or not op.results[0].type.dtype.is_float:
        return None
    for side in (0, 1):
        result = of_shape(op.results[0].type.shape)
        try:
            found = attention_of(r, op, result, side)
        except NotAligned:
            continue
        made = None if found is None else _matched(r, op, found, check)
        if made is not None:
            return made
    return None


def _matched(r: Rewriter, op: Op, found: Attention, check: Callable[[_Nest], None] | None) -> Recognised | None:
    causal, masks = _causal(r, found)
    masks = _together(r, masks)
    nest = _nest(found, None if causal is None else causal.query)
    if nest is None:
        return None
    if len(masks) > 1:
        raise NearMiss(f"{len(masks)} masks, the kernel takes one besides a causal one")
    if check is not None:
        check(nest)
    letters = nest.letters()
    specs, inputs = {}, []
    for name, seen in (("q", found.query), ("k", found.key), ("v", found.value)):
        order = nest.ordered(seen.dims) if name == "q" else _order(seen.dims)
        specs[f"{name}_dims"] = "".join(letters[index] for index in order)
        inputs.append(r.reshape(seen.value, [index.size for index in order]))
    if specs["v_dims"].index("k") > specs["v_dims"].index("f"):
        raise NearMiss("values have their features before the keys, the kernel takes keys first")
    for mask in masks:
        value, specs["mask_dims"] = _mask_input(r, mask, letters)
        inputs.append(value)
    facts: dict[str, Any] = {
        **specs,
        "scale": found.scale,
        "empty": found.empty,
        "dtype": op.results[0].type.dtype.name,
    }
    facts |= {"causal": None if causal is None else causal.offset, "hidden": masks[0].hidden if masks else None}
    return Recognised(_with_result(r, op, nest.ordered(found.result), letters, inputs, facts), found, letters)


def _with_result(
    r: Rewriter,
    op: Op,
    order: list[Index],
    letters: Mapping[Index, str],
    inputs: Sequence[Value],
    facts: dict[str, Any],
) -> Match:
    """The kernel's result has its loops first, then queries and features; it is moved to where the model has them."""
    inner = [index for index in order if letters[index] not in "qf"]
    rows, columns = (next(index for index in order if letters[index] == letter) for letter in "qf")
    made = [*inner, rows, columns]
    facts["out_dims"] = "".join(letters[index] for index in made)
    kind = op.results[0].type

    def finish(r: Rewriter, values: Sequence[Value]) -> tuple[Value, ...]:
        return (r.reshape(r.transpose(values[0], [made.index(index) for index in order]), kind.shape),)

    return Match(tuple(inputs), op.results, facts, finish)


def _order(dims: Dims) -> list[Index]:
    """The indices of a value, slowest first."""
    return [index for dim in flat(dims) for index in dim]


def _nest(found: Attention, query: Index | None) -> _Nest | None:
    """What each index is; None if one has no place in the kernel."""
    q, k, v, out = (_order(dims) for dims in (found.query.dims, found.key.dims, found.value.dims, found.result))
    if any(len(set(map(id, each))) != len(each) for each in (q, k, v, out)):
        return None
    shared = [index for index in k if index in q and index in v and index in out]
    free = [index for index in q if index in out and index not in k and index not in v]
    key = [index for index in k if index in v and index not in q and index not in out]
    head = [index for index in q if index in k and index not in v and index not in out]
    features = [index for index in v if index in out and index not in q and index not in k]
    places = [*shared, *free, *key, *head, *features]
    if any(len(each) != 1 for each in (key, head, features)):
        return None
    if any(index not in places for index in (*q, *k, *v, *out)):
        return None
    rows = query if query in free else max(free, key=lambda index: index.size, default=Index(1))
    groups = [index for index in free if index is not rows]
    if len(shared) + len(groups) > len(LETTERS):
        return None
    return _Nest(shared, groups, rows, key[0], head[0], features[0])


def _check_limits(nest: _Nest) -> None:
    """Raise NearMiss for what the kernel has no room for, or not in reasonable time."""
    loops = prod(index.size for index in (*nest.shared, *nest.groups))
    pieces = loops * -(-nest.query.size // PARTITIONS) * -(-nest.key.size // MOST_FEATURES)
    sizes = (
        (nest.head.size, PARTITIONS, "heads of {}"),
        (nest.features.size, MOST_FEATURES, "{} features of values"),
        (nest.key.size, MOST_KEYS, "{} keys"),
        (pieces, _MOST_PIECES, "{} blocks of 128 queries and 512 keys"),
    )
    for size, most, what in sizes:
        if size > most:
            raise NearMiss(f"{what.format(size)}, the kernel takes up to {most}")


# ------------------------------------------------------------------------------------------------------------- masks


@dataclass(frozen=True, slots=True)
class _Causal:
    """A mask that lets a query see the keys up to its own position.

    Attributes:
        offset: how many more keys it sees.
    """

    query: Index
    offset: int


def _causal(r: Rewriter, found: Attention) -> tuple[_Causal | None, list[Mask]]:
    """The causal mask, if one of the masks is, and the others.

    The kernel does not look at what a causal mask hides. Numbers that only come close to minus infinity are not the
    same where another mask hides all the rest: then all keys have equal weights.
    """
    causal, rest = None, []
    limit = _HIDDEN if len(found.masks) == 1 else float("-inf")
    for mask in found.masks:
        visible = _visible(r, mask, limit)
        if visible is not None and visible.all():
            continue
        now = None if visible is None else _causal_of(found, mask, visible)
        if now is None or causal is not None:
            rest.append(mask)
        else:
            causal = now
    return causal, rest


def _causal_of(found: Attention, mask: Mask, visible: np.ndarray[Any, Any]) -> _Causal | None:
    """The causal mask that these truth values are, in all batches and heads."""
    order = _order(mask.seen.dims)
    queries, keys = _order(found.query.dims), _order(found.key.dims)
    rows = [index for index in order if index in queries and index not in keys]
    columns = [index for index in order if index in keys and index not in queries]
    for row in rows if len(columns) == 1 else ():
        others = [index for index in order if index is not row and index is not columns[0]]
        turned = visible.transpose([order.index(index) for index in (*others, row, columns[0])])
        first = turned[(0,) * len(others)]
        offset = int(np.count_nonzero(first[0])) - 1
        expected = np.tri(row.size, columns[0].size, offset, dtype=bool)
        if offset >= 0 and np.array_equal(turned, np.broadcast_to(expected, turned.shape)):
            return _Causal(row, offset)
    return None


def _visible(r: Rewriter, mask: Mask, limit: float) -> np.ndarray[Any, Any] | None:
    """Which scores a constant mask leaves as they are, if it takes all others to `limit` or below."""
    array = known(r, mask.seen.value)
    if array is None:
        return None
    array = array.reshape([index.size for index in _order(mask.seen.dims)])
    if mask.hidden is not None:
        return array.astype(bool) if mask.hidden <= limit else None
    visible = array == 0
    return visible if bool(np.all(array[~visible] <= limit)) else None


def _together(r: Rewriter, masks: list[Mask]) -> list[Mask]:
    """Masks of truth values that give hidden scores the same number as one."""
    if len(masks) < 2 or masks[0].hidden is None or any(mask.hidden != masks[0].hidden for mask in masks):
        return masks
    orders = [_order(mask.seen.dims) for mask in masks]
    every = list(dict.fromkeys(index for order in orders for index in order))
    shape = [index.size for index in every]
    values = []
    for mask, order in zip(masks, orders, strict=True):
        mine = [index for index in every if index in order]
        value = r.reshape(mask.seen.value, [index.size for index in order])
        value = r.transpose(value, [order.index(index) for index in mine])
        values.append(r.broadcast(value, shape, [every.index(index) for index in mine]))
    both = values[0]
    for value in values[1:]:
        both = r.same("and", both, value)
    return [Mask(Seen(both, [[index] for index in every]), masks[0].hidden)]


def _mask_input(r: Rewriter, mask: Mask, letters: Mapping[Index, str]) -> tuple[Value, str]:
    """A mask with its loops first, then queries and keys; truth values are bytes in device memory."""
    order = _order(mask.seen.dims)
    wanted = sorted(order, key=lambda index: (letters[index] in "qk", letters[index] == "k", letters[index]))
    value = r.reshape(mask.seen.value, [index.size for index in order])
    return r.transpose(value, [order.index(index) for index in wanted]), "".join(letters[index] for index in wanted)
