"""Heads of queries and keys in a model: from a product with weights through norms of heads to their rotation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nki.graph.patterns import NearMiss, Op, Rewriter, Value, unconverted
from nkilib.patterns.matching import Linear, Norm, last, linear, norm

_MOST_MOVES = 8


@dataclass(frozen=True, slots=True)
class Heads:
    """Columns of a product as heads.

    Attributes:
        product: with weights.
        made: the product, ``(..., heads * features)``.
        moves: reshapes and transposes that make ``(..., features)`` of it, in order.
        norm: of each head, before they are rotated.
    """

    product: Linear
    made: Value
    moves: tuple[Op, ...]
    norm: Norm | None

    def moved(self, r: Rewriter, value: Value) -> Value:
        """The same moves of another value."""
        value = r.reshape(value, self.made.type.shape)
        for op in self.moves:
            if op.name == "reshape":
                value = r.reshape(value, op.results[0].type.shape)
            else:
                value = r.transpose(value, op.attributes["permutation"])
        return value

    def places(self, features: int) -> np.ndarray | None:
        """For each place of the heads as they are moved ``token * heads + head``; None if features are moved apart."""
        *tokens, columns = self.made.type.shape
        found = np.arange(int(np.prod(tokens)) * columns // features).reshape((*tokens, columns // features))
        for op in self.moves:
            if op.results[0].type.shape[-1] != features:
                return None
            if op.name == "reshape":
                found = found.reshape((*op.results[0].type.shape[:-1], 1))
            elif found.shape[-1] == 1 and op.attributes["permutation"][-1] == found.ndim - 1:
                found = found.transpose(op.attributes["permutation"])
            else:
                return None
        return found[..., 0] if found.shape[-1] == 1 else None


def heads_of(r: Rewriter, value: Value) -> Heads | None:
    """The heads that a value is, normalised or not."""
    moves: list[Op] = []
    found: Norm | None = None
    for _ in range(_MOST_MOVES):
        value = unconverted(r, value)
        op = r.maker(value)
        product = linear(r, op)
        if product is not None:
            return Heads(product, value, tuple(reversed(moves)), found)
        if op is not None and op.name in ("reshape", "transpose"):
            moves.append(op)
            value = op.operands[0]
        elif op is not None and found is None and (inner := norm(r, op)) is not None and inner.kind == "RMS_NORM":
            found, value = inner, inner.x
        else:
            return None
    return None


@dataclass(frozen=True, slots=True)
class Rotated:
    """``x * cos + concatenate((-x2, x1)) * sin`` of ``x = concatenate((x1, x2))`` in its last dimension."""

    x: Value
    cos: Value
    sin: Value


def rotated(r: Rewriter, op: Op) -> Rotated | None:
    """The rotation that an operation ends."""
    if op.name != "add":
        return None
    for straight, crossed in (op.operands, op.operands[::-1]):
        one, two = (r.maker(_unmoved(r, value), "multiply") for value in (straight, crossed))
        if one is None or two is None:
            continue
        for turned, sin in (two.operands, two.operands[::-1]):
            source = _crossed(r, _unmoved(r, turned))
            for x, cos in (one.operands, one.operands[::-1]) if source is not None else ():
                if source is not None and _unmoved(r, x) is _unmoved(r, source):
                    return Rotated(source, cos, sin)
    return None


def _unmoved(r: Rewriter, value: Value) -> Value:
    """A value before conversions and reshapes that keep its features."""
    value = unconverted(r, value)
    while (op := r.maker(value, "reshape")) is not None and last(op.operands[0]) == last(value):
        value = unconverted(r, op.operands[0])
    return value


def _crossed(r: Rewriter, value: Value) -> Value | None:
    """x of ``concatenate((-x2, x1))``."""
    joined = r.maker(value, "concatenate")
    if joined is None or len(joined.operands) != 2 or joined.attributes["dimension"] != len(value.type.shape) - 1:
        return None
    half = last(value) // 2
    negated = r.maker(unconverted(r, joined.operands[0]), "negate")
    second = None if negated is None else _half_of(r, negated.operands[0], half)
    first = _half_of(r, joined.operands[1], 0)
    return first if first is not None and first is second and 2 * half == last(first) == last(value) else None


def _half_of(r: Rewriter, value: Value, start: int) -> Value | None:
    """What a value is a run of features of, from `start` on."""
    op = r.maker(unconverted(r, value), "slice")
    if op is None:
        return None
    begins, source = tuple(op.attributes["start_indices"]), op.operands[0]
    whole = op.results[0].type.shape[:-1] == source.type.shape[:-1] and set(op.attributes["strides"]) == {1}
    return unconverted(r, source) if whole and begins == (*[0] * (len(begins) - 1), start) else None


def by_token(r: Rewriter, wide: Value, places: np.ndarray | None, heads: int) -> Value:
    """Factors of heads as ``(tokens, features)``.

    Args:
        wide: factors for each place and feature.
        places: of the heads, see `Heads.places`.

    Raises:
        NearMiss: they are not the same for all heads of a token.
    """
    op = r.maker(unconverted(r, wide), "broadcast_in_dim")
    if op is None or places is None or op.results[0].type.size != places.size * last(wide):
        raise NearMiss("its angles are not those of tokens, the kernel takes a row for each")
    shape, dims, source = op.results[0].type.shape, tuple(op.attributes["broadcast_dimensions"]), op.operands[0]
    places = places.reshape(shape[:-1])
    steps = [_step(places, axis) for axis in range(places.ndim)]
    kept = [n for n, size in enumerate(source.type.shape) if size > 1]
    if len(shape) - 1 not in dims or last(source) != shape[-1]:
        raise NearMiss("its angles are the same for all features, the kernel takes one for each")
    if any(dims[n] < len(steps) and steps[dims[n]] < heads for n in kept):
        raise NearMiss("its angles are not the same for all heads, the kernel takes one for each token")
    tokens = [axis for axis, step in enumerate(steps) if step >= heads]
    axes = [*tokens, len(shape) - 1]
    narrow = r.reshape(source, [source.type.shape[n] for n in kept])
    found = r.broadcast(narrow, [shape[axis] for axis in axes], [axes.index(dims[n]) for n in kept])
    order = sorted(range(len(tokens)), key=lambda n: -steps[tokens[n]])
    assert all(one >= two for one, two in pairwise(steps[tokens[n]] for n in order))
    turned = r.transpose(found, [*order, len(tokens)])
    return r.reshape(turned, (int(np.prod(turned.type.shape[:-1])), shape[-1]))


def moved_from(r: Rewriter, value: Value) -> list[object]:
    """What a value is moved from, and how; equal for equal values."""
    found: list[object] = [value.type]
    while (op := r.maker(value)) is not None and op.name in ("broadcast_in_dim", "reshape", "transpose"):
        value = op.operands[0]
        found += [op.name, sorted(op.attributes.items()), value.type]
    return [*found, id(value)]


def _step(places: np.ndarray, axis: int) -> int:
    """How far the second place along an axis is from the first one; 0 if there is none."""
    line = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])[0]
    return int(line[1] - line[0]) if len(line) > 1 else 0


def beside(r: Rewriter, values: Sequence[Value], what: str) -> np.ndarray:
    """Constants of the model, side by side in their last dimension. Raises NearMiss for others."""
    arrays = [array for value in values if (array := r.constant_of(value)) is not None]
    if len(arrays) < len(values):
        raise NearMiss(f"its {what} are arguments of the model, the kernel takes them side by side")
    return np.concatenate(arrays, axis=-1)
