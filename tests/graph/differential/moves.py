"""Operators that move elements: PyTorch's own code, on the ends of the bounds, says what they do."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from tests.graph.differential.bound import Bound, UndefinedError
from tests.graph.differential.operator import MOST, Attributes, Draw, NoFitError, enter
from tests.graph.differential.records import Array

Made = tuple[tuple[int, ...], dict[str, Any]]


def on_ends(code: str, attributes: Attributes, *operands: Bound | Array) -> Bound:
    """Code that moves elements, for both ends and for NaN; operands that are arrays are indices."""
    names = [f"x{n}" for n in range(len(operands))]
    text = code.format(*names, **attributes)
    first = next(x for x in operands if isinstance(x, Bound))

    def ends(part: Callable[[Bound], Array]) -> Array:
        values = {
            name: torch.from_numpy(np.array(part(x) if isinstance(x, Bound) else x))
            for name, x in zip(names, operands, strict=True)
        }
        return np.asarray(eval(text, {"torch": torch}, values).numpy())

    return Bound(first.dtype, ends(lambda x: x.low), ends(lambda x: x.high), ends(lambda x: x.nan))


def _move(name: str, code: str, jax: str, draw: Callable[[Draw], Made], weight: float = 1.0) -> None:
    enter(name, code, jax, draw, lambda a, *x: on_ends(code, a, *x), weight)


def _ranked(d: Draw, least: int) -> int:
    return d.pick(lambda x: len(x.shape) >= least)


def _permutation(d: Draw) -> Made:
    x = _ranked(d, 2)
    order = list(range(len(d.bounds[x].shape)))
    d.random.shuffle(order)
    if d.chance(0.5):
        order = [*range(len(order) - 2), len(order) - 1, len(order) - 2]
    return (x,), {"order": tuple(order)}


def _reshaped(d: Draw) -> Made:
    x = _ranked(d, 1)
    shape = list(d.bounds[x].shape)
    for _ in range(d.one(1, 1, 2)):
        place = d.random.randrange(len(shape))
        if len(shape) > 1 and d.chance(0.5):
            place = d.random.randrange(len(shape) - 1)
            shape[place : place + 2] = [shape[place] * shape[place + 1]]
        elif len(shape) < 5:
            factors = [f for f in (1, 2, 3, 4, 8, 16, 32, 64, 128) if shape[place] % f == 0]
            factor = d.random.choice(factors)
            pair = [factor, shape[place] // factor]
            d.random.shuffle(pair)
            shape[place : place + 1] = pair
    return (x,), {"shape": tuple(shape)}


def _sliced(d: Draw) -> Made:
    x = _ranked(d, 1)
    parts = []
    for n in d.bounds[x].shape:
        kind = d.random.random()
        if n == 1 or kind < 0.5:
            parts.append(":")
        elif kind < 0.75:
            low = d.random.randrange(n)
            parts.append(f"{low}:{d.random.randrange(low + 1, n + 1)}")
        elif kind < 0.9:
            parts.append(f"{d.random.randrange(min(n, 3))}::{d.one(2, 3)}")
        else:
            parts.append(f"{d.random.randrange(n)}:")
    return (x,), {"parts": ", ".join(parts)}


def _joined(d: Draw) -> Made:
    x = _ranked(d, 1)
    shape, dtype = d.bounds[x].shape, d.bounds[x].dtype
    axis = d.random.randrange(len(shape))

    def fits(n: int) -> bool:
        other = d.bounds[n]
        same = len(other.shape) == len(shape) and other.dtype == dtype
        return same and all(a == b for k, (a, b) in enumerate(zip(shape, other.shape, strict=True)) if k != axis)

    there = [n for n in range(len(d.bounds)) if fits(n)]
    other = d.random.choice(there)
    if d.chance(0.4):
        other = d.fresh(tuple(d.one(1, n, 2) if k == axis else n for k, n in enumerate(shape)), dtype)
    if prod(shape) + d.bounds[other].size > MOST:
        raise NoFitError
    return d.random.choice([(x, other), (other, x)]), {"axis": axis}


def _padded(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) >= 1 and b.is_float and b.size < MOST // 4)
    shape = d.bounds[x].shape
    pads = [d.one((0, 0), (1, 0), (0, 2), (1, 1), (-1, 0) if n > 2 else (0, 1)) for n in shape]
    flat = tuple(p for pair in reversed(pads) for p in pair)
    if any(n + a + b < 1 for n, (a, b) in zip(shape, pads, strict=True)):
        raise NoFitError
    triples = tuple((a, b, 0) for a, b in pads)
    return (x,), {"pads": flat, "triples": triples, "value": d.one(0.0, 0.0, 1.0, -2.0)}


def _expanded(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) in (1, 2, 3) and b.size < MOST // 8)
    shape = [n if n > 1 else d.one(1, 1, 2, 3) for n in d.bounds[x].shape]
    if d.chance(0.6):
        shape = [d.one(1, 2, 3, 5), *shape]
    return (x,), {"shape": tuple(shape)}


def _an_axis(least: int = 1) -> Callable[[Draw], Made]:
    def draw(d: Draw) -> Made:
        x = _ranked(d, least)
        return (x,), {"axis": d.random.randrange(len(d.bounds[x].shape))}

    return draw


def _new_axis(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) <= 3)
    return (x,), {"axis": d.random.randrange(len(d.bounds[x].shape) + 1)}


def _rolled(d: Draw) -> Made:
    (x,), attributes = _an_axis()(d)
    return (x,), {**attributes, "shift": d.one(1, -1, 2, 3)}


def _cut(d: Draw) -> Made:
    x = d.pick(lambda b: any(n % 2 == 0 for n in b.shape))
    axis = d.random.choice([k for k, n in enumerate(d.bounds[x].shape) if n % 2 == 0])
    return (x,), {"axis": axis, "part": d.one(0, 1)}


def _triangle(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) >= 2)
    return (x,), {"side": d.one("tril", "triu"), "diagonal": d.one(-1, 0, 0, 1)}


_move("permute", "torch.permute({0}, {order})", "jnp.transpose({0}, {order})", _permutation, 3.0)
_move("reshape", "torch.reshape({0}, {shape})", "jnp.reshape({0}, {shape})", _reshaped, 3.0)
_move("slice", "{0}[{parts}]", "{0}[{parts}]", _sliced, 2.5)
_move("concatenate", "torch.cat([{0}, {1}], {axis})", "jnp.concatenate([{0}, {1}], {axis})", _joined, 2.0)
_move("stack", "torch.stack([{0}, {0}], {axis})", "jnp.stack([{0}, {0}], {axis})", _new_axis, 0.4)
_move("pad", "torch.nn.functional.pad({0}, {pads}, value={value})",
      "lax.pad({0}, jnp.asarray({value}, {0}.dtype), {triples})", _padded, 1.0)  # fmt: skip
_move("expand", "{0}.expand({shape})", "jnp.broadcast_to({0}, {shape})", _expanded, 1.5)
_move("flip", "torch.flip({0}, [{axis}])", "jnp.flip({0}, {axis})", _an_axis(), 0.7)
_move("roll", "torch.roll({0}, {shift}, {axis})", "jnp.roll({0}, {shift}, {axis})", _rolled, 0.7)
_move("unsqueeze", "{0}.unsqueeze({axis})", "jnp.expand_dims({0}, {axis})", _new_axis, 1.0)
_move("half", "torch.chunk({0}, 2, {axis})[{part}]", "jnp.split({0}, 2, {axis})[{part}]", _cut, 1.0)
_move("triangle", "torch.{side}({0}, {diagonal})", "jnp.{side}({0}, {diagonal})", _triangle, 0.5)
_move("diagonal", "torch.diagonal({0}, 0, -2, -1)", "jnp.diagonal({0}, 0, -2, -1)",
      lambda d: ((_ranked(d, 2),), {}), 0.3)  # fmt: skip

# ----------------------------------------------------------------------------------------------------------- indices


def _whole(x: Bound) -> Array:
    if not x.exact:
        raise UndefinedError("an open index")
    return x.low.astype(np.int64)


def _taken(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) >= 1 and b.dtype != "bool")
    shape = d.bounds[x].shape
    axis = d.random.randrange(len(shape))
    count = d.one(1, 2, 3, 5, 127, 128, 129)
    if prod(shape) // shape[axis] * count > MOST:
        raise NoFitError
    return (x, d.fresh((count,), "int32", "index", shape[axis])), {"axis": axis}


def _looked_up(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) == 2 and b.is_float and b.size < MOST)
    rows, columns = d.bounds[x].shape
    shape = d.one((1,), (3, 5), (129,), (2, 128), (1, 1), (2, 3, 4))
    if prod(shape) * columns > MOST:
        raise NoFitError
    return (x, d.fresh(shape, "int32", "index", rows)), {}


def _gathered(d: Draw) -> Made:
    x = d.pick(lambda b: len(b.shape) >= 1 and b.dtype != "bool" and b.size < MOST // 8)
    shape = d.bounds[x].shape
    axis = d.random.randrange(len(shape))
    picked = tuple(d.one(1, 3, n) if k == axis else n for k, n in enumerate(shape))
    return (x, d.fresh(picked, "int32", "index", shape[axis])), {"axis": axis}


def _placed(d: Draw) -> Made:
    """Rows of another tensor in the place of some, which are different ones."""
    x = d.pick(lambda b: len(b.shape) >= 1 and b.is_float and b.size < MOST // 8)
    shape = d.bounds[x].shape
    count = d.random.randint(1, min(shape[0], 5))
    index = d.fresh((count,), "int32", "unique", shape[0])
    return (x, index, d.fresh((count, *shape[1:]), d.bounds[x].dtype)), {}


def _indexed(code: str) -> Callable[..., Bound]:
    return lambda a, x, index, *rest: on_ends(code, a, x, _whole(index), *rest)


def _index(name: str, code: str, jax: str, draw: Callable[[Draw], Made], weight: float) -> None:
    enter(name, code, jax, draw, _indexed(code), weight)


def _window(d: Draw) -> Made:
    """A part whose place is known when the model runs; places that are too far are moved."""
    x = d.pick(lambda b: len(b.shape) >= 1 and b.dtype != "bool")
    shape = d.bounds[x].shape
    sizes = tuple(d.random.randint(1, n) if d.chance(0.5) else n for n in shape)
    start = d.fresh((len(shape),), "int32", "index", d.one(1, 3, max(shape)))
    return (x, start), {"sizes": sizes}


def _part(a: Attributes, x: Bound, start: Bound) -> tuple[slice, ...]:
    lows = np.minimum(_whole(start), np.array(x.shape) - np.array(a["sizes"]))
    return tuple(slice(low, low + size) for low, size in zip(lows, a["sizes"], strict=True))


def _started(a: Attributes, x: Bound, start: Bound) -> Bound:
    part = _part(a, x, start)
    return Bound(x.dtype, x.low[part], x.high[part], x.nan[part])


def _update_draw(d: Draw) -> Made:
    (x, start), attributes = _window(d)
    return (x, d.fresh(attributes["sizes"], d.bounds[x].dtype), start), attributes


def _updated(a: Attributes, x: Bound, y: Bound, start: Bound) -> Bound:
    made = [x.low.copy(), x.high.copy(), x.nan.copy()]
    for whole, new in zip(made, (y.low, y.high, y.nan), strict=True):
        whole[_part(a, x, start)] = new
    return Bound(x.dtype, made[0], made[1], made[2])


enter("dynamic_slice", "", "lax.dynamic_slice({0}, list({1}), {sizes})", _window, _started, 0.7)
enter("dynamic_update_slice", "", "lax.dynamic_update_slice({0}, {1}, list({2}))", _update_draw, _updated, 0.7)
_index(
    "index_select", "torch.index_select({0}, {axis}, {1}.to(torch.int64))", "jnp.take({0}, {1}, {axis})", _taken, 1.0
)
_index("embedding", "torch.nn.functional.embedding({1}.to(torch.int64), {0})", "{0}[{1}]", _looked_up, 0.7)
_index(
    "gather", "torch.gather({0}, {axis}, {1}.to(torch.int64))", "jnp.take_along_axis({0}, {1}, {axis})", _gathered, 0.7
)
_index("index_put", "torch.index_put({0}, [{1}.to(torch.int64)], {2})", "{0}.at[{1}].set({2})", _placed, 0.7)
