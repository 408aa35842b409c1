"""Cases of products: dot_general and convolutions of all kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.graph.stablehlo.draw import (
    BF16,
    F16,
    F32,
    FLOATS,
    INTEGERS,
    Array,
    Case,
    Draw,
    is_float,
    lowered,
    mlir_type,
    type_of,
    written,
)  # fmt: skip
from tests.graph.stablehlo.pointwise import Generator

_SCALED = {F32: 3e-6, BF16: 2.0**-7, F16: 2.0**-9}
"""What the order of the additions changes, and where JAX rounds small floats, relative to the largest result."""


def _numbers(draw: Draw, shape: Any, dtype: np.dtype[Any]) -> Array:
    if is_float(dtype):
        return draw.array(shape, dtype, False)
    return draw.array(shape, dtype, False, top=draw.one(3, 100, 0))


def _size(draw: Draw) -> int:
    return int(draw.one(1, 2, 3, 5, 8, 16, 17, 33, 64, 130, 200) if draw.chance(0.3) else draw.one(1, 2, 3, 5, 8))


def _dot_general(draw: Draw) -> Case:
    batch, contracted = (
        [_size(draw) for _ in range(draw.one(0, 0, 1, 2))],
        [_size(draw) for _ in range(draw.one(1, 1, 2, 0))],
    )
    left, right = ([_size(draw) for _ in range(draw.one(1, 1, 0, 2))] for _ in range(2))
    batch, contracted = [min(b, 8) for b in batch], contracted[:1] + [min(c, 8) for c in contracted[1:]]
    orders, operands = [], []
    dtype = draw.one(*FLOATS, *INTEGERS) if draw.chance(0.7) else F32
    for free in (left, right):
        sizes = [*batch, *contracted, *free]
        order = draw.order(len(sizes)) if draw.chance(0.6) else tuple(range(len(sizes)))
        orders.append([order.index(d) for d in range(len(sizes))])
        operands.append(_numbers(draw, [sizes[d] for d in order], dtype))
    b, c = len(batch), len(batch) + len(contracted)
    dims = (tuple(tuple(o[b:c]) for o in orders), tuple(tuple(o[:b]) for o in orders))
    wide: np.dtype[Any] | None = F32 if dtype in (BF16, F16) and draw.chance(0.4) else None
    if dtype.itemsize == 1 and draw.chance(0.6):
        wide = np.dtype("int32")
    note = f"{type_of(operands[0])} {type_of(operands[1])} {dims}"
    scaled = _SCALED.get(dtype, 0.0)
    if draw.chance(0.25) and is_float(dtype):
        return lowered(
            lambda x, y: jnp.maximum(lax.dot_general(x, y, dims, preferred_element_type=wide) * 2, 0),
            *operands, scaled=scaled, note=note,
        )  # fmt: skip
    return lowered(
        lambda x, y: lax.dot_general(x, y, dims, preferred_element_type=wide), *operands, scaled=scaled, note=note
    )


def _dot(draw: Draw) -> Case:
    dtype, k = draw.one(*FLOATS), _size(draw)
    left, right = draw.one([], [_size(draw)]), draw.one([], [_size(draw)])
    a, b = _numbers(draw, [*left, k], dtype), _numbers(draw, [k, *right], dtype)
    result = mlir_type([*left, *right], dtype)
    line = f"%r0 = stablehlo.dot %a0, %a1 : ({type_of(a)}, {type_of(b)}) -> {result}"
    return written(line, [result], a, b, scaled=_SCALED[dtype], note=f"{type_of(a)} {type_of(b)}")


# ------------------------------------------------------------------------------------------------------- convolutions


def _convolution(kind: str) -> Generator:
    def make(draw: Draw) -> Case:
        rank = draw.one(1, 2, 2, 2, 3) if kind != "3d" else 3
        dtype = draw.one(*FLOATS) if kind != "integers" else draw.one(np.dtype("int8"), np.dtype("int32"))
        kernel = [draw.one(1, 2, 3, 3, 5) for _ in range(rank)]
        strides = [draw.one(1, 1, 2, 3) if kind != "transposed" else 1 for _ in range(rank)]
        low, top = (0, 4) if kind != "negative padding" else (-2, 3)
        padding = [(draw.below(top, low), draw.below(top, low)) for _ in range(rank)]
        left = [draw.one(1, 2, 3) if kind in ("transposed", "dilated") else 1 for _ in range(rank)]
        right = [draw.one(1, 2, 3) if kind == "dilated" else 1 for _ in range(rank)]
        groups = draw.one(2, 3, 4) if kind == "grouped" else 1
        batches = draw.one(2, 3) if kind == "batch groups" else 1
        inputs, outputs = draw.one(1, 2, 3, 8), draw.one(1, 2, 4, 9)
        if kind == "depthwise":
            groups, inputs, outputs = inputs * 2, 1, draw.one(1, 2)
        batch = draw.one(1, 2, 3) * batches
        image = [
            max(draw.one(3, 4, 5, 7, 8, 12), (k - 1) * r + 1 + 4) if rank < 3 else max(5, (k - 1) * r + 5)
            for k, r in zip(kernel, right, strict=True)
        ]
        x_sizes = [batch, inputs * groups, *image]
        w_sizes = [outputs * groups * batches, inputs, *kernel]
        names = "NC" + "DHW"[:rank], "OI" + "DHW"[:rank], "NC" + "DHW"[:rank]
        orders = [draw.order(rank + 2) if draw.chance(0.6) else tuple(range(rank + 2)) for _ in names]
        spelled = tuple("".join(name[d] for d in order) for name, order in zip(names, orders, strict=True))
        x = _numbers(draw, [x_sizes[d] for d in orders[0]], dtype)
        w = _numbers(draw, [w_sizes[d] for d in orders[1]], dtype)
        note = f"{type_of(x)} {type_of(w)} {spelled} strides {strides} {padding} dilated {left} {right}"
        wide = np.dtype("int32") if dtype.kind == "i" else None
        return lowered(
            lambda a, b: lax.conv_general_dilated(
                a, b, strides, padding, left, right, spelled, groups, batches, preferred_element_type=wide
            ),
            x, w, scaled=_SCALED.get(dtype, 0.0), note=f"{note} groups {groups} {batches}",
        )  # fmt: skip

    return make


def _reversed(draw: Draw) -> Case:
    """Windows that are read backwards, which JAX never writes."""
    x = _numbers(draw, (draw.one(1, 2), draw.one(1, 3), 6, 7), F32)
    w = _numbers(draw, (draw.one(1, 4), x.shape[1], 2, 3), F32)
    back = draw.one("true, false", "false, true", "true, true")
    result = mlir_type((x.shape[0], w.shape[0], 5, 5), F32)
    line = f"""%r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {{reverse = [{back}]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : ({type_of(x)}, {type_of(w)}) -> {result}"""
    return written(line, [result], x, w, scaled=_SCALED[F32], note=f"reverse {back}")


PRODUCTS: Mapping[str, Generator] = {
    "dot_general": _dot_general,
    "dot": _dot,
    "convolution": _convolution("plain"),
    "convolution transposed": _convolution("transposed"),
    "convolution dilated": _convolution("dilated"),
    "convolution grouped": _convolution("grouped"),
    "convolution depthwise": _convolution("depthwise"),
    "convolution batch groups": _convolution("batch groups"),
    "convolution 3d": _convolution("3d"),
    "convolution negative padding": _convolution("negative padding"),
    "convolution of integers": _convolution("integers"),
    "convolution window reversal": _reversed,
}
"""By the name of the operation."""
