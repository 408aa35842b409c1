"""Examples of tensor_tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.elementwise_reference import (
    ABSOLUTE,
    ARITHMETIC,
    BITS,
    F32,
    exactly,
    in_bits,
    in_float32,
)
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import (
    arrays,
    empty,
    filled,
    gather,
    gather_arrays,
    gathered,
    load,
    misplaced,
    nothing,
    store,
)

BF16 = ml_dtypes.bfloat16
SMALL = [np.float16, BF16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, np.int8, np.uint8, np.int16, np.uint16]
TRN3 = ("trn3",)


def integers(*dtypes: Any, most: int = 2**32, shape: Any = (8, 24)) -> Callable[[], tuple[Any, ...]]:
    """Integers of the whole range, or up to `most`."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(2)
        ranges = [np.iinfo(dtype) for dtype in dtypes]
        return tuple(
            r.integers(max(i.min, -most), min(i.max, most) + 1, shape).astype(d)
            for i, d in zip(ranges, dtypes, strict=True)
        )

    return make


def few() -> tuple[Any, ...]:
    """Floats among which many are equal or 0."""
    r = np.random.default_rng(3)
    return tuple(r.integers(-2, 3, (8, 24)).astype(F32) for _ in "ab")


def pairwise(op: Any, dtype: Any = F32, places: Any = (nl.sbuf,) * 3, **options: Any) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        result = empty(a.shape, dtype, places[0])
        nisa.tensor_tensor(result, load(a, places[1]), load(b, places[2]), op, **options)
        return store(result)

    return kernel


def in_place(a: Any, b: Any) -> Any:
    """Strided views of three ranks, the result over an input."""
    x, y = load(a), load(b)
    nisa.tensor_tensor(dst=x[:, 0:12:2], data1=x[:, 12:24:2], data2=y.reshape((8, 2, 3, 4))[:, :, :, 1], op=nl.subtract)
    return store(x)


def in_place_expected(a: Any, b: Any) -> np.ndarray:
    out = a.copy()
    for i in range(6):
        out[:, 2 * i] = a[:, 12 + 2 * i] - b[:, 4 * i + 1]
    return out


def refused(code: str, call: Any, target: str = "trn2") -> Breaks:
    """A kernel that calls `call(float tile, int tile, PSUM tile)` on (4, 8) elements."""

    def kernel(a: Any) -> Any:
        tile = load(a)
        call(tile, filled((4, 8), 1, np.int32), filled((4, 8), 1.0, buffer=nl.psum))
        return store(tile)

    return Breaks(code, kernel, nothing, target)


def tensor(dst: Any, data1: Any, data2: Any, op: Any = nl.add, **options: Any) -> Any:
    return nisa.tensor_tensor(dst, data1, data2, op, **options)


PSUM_PLACES = [(nl.psum, nl.sbuf, nl.sbuf), (nl.sbuf, nl.psum, nl.sbuf), (nl.psum, nl.sbuf, nl.psum)]
FLOATS = arrays((8, 24), (8, 24), scale=50.0)

EXAMPLES = [
    *[Legal("tensor_tensor", pairwise(op), FLOATS, in_float32(op)) for op in ARITHMETIC],
    *[Legal("tensor_tensor", pairwise(op), few, in_float32(op)) for op in ARITHMETIC],
    *[Legal("tensor_tensor", pairwise(op), few, in_float32(op), TRN3) for op in ABSOLUTE],
    Legal(
        "tensor_tensor", pairwise(nl.power), lambda: tuple(np.abs(v) for v in few()), in_float32(nl.power), rtol=1e-6
    ),
    *[
        Legal("tensor_tensor", pairwise(op, d), arrays((8, 24), (8, 24), dtype=d, scale=90.0), in_float32(op, d))
        for d in SMALL
        for op in (nl.add, nl.multiply)
    ],
    Legal("tensor_tensor", pairwise(nl.less, np.uint8), FLOATS, in_float32(nl.less, np.uint8)),
    Legal("tensor_tensor", pairwise(nl.add, np.int32), FLOATS, in_float32(nl.add, np.int32)),
    *[
        Legal("tensor_tensor", pairwise(op, d), integers(d, d), exactly(op, d))
        for d in (np.int32, np.uint32)
        for op in (nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum, nl.greater, nl.logical_xor)
    ],
    Legal("tensor_tensor", pairwise(nl.add, np.int32), integers(np.uint32, np.int32), exactly(nl.add, np.int32)),
    *[
        Legal(
            "tensor_tensor",
            pairwise(nl.add, np.int32, **options),
            integers(np.int32, np.int32),
            in_float32(nl.add, np.int32),
        )
        for options in ({"engine": nisa.engine.vector}, *({"places": places} for places in PSUM_PLACES))
    ],
    *[
        Legal("tensor_tensor", pairwise(op, d), integers(d, d, most=40), in_bits(op, d))
        for op in BITS
        if op is not nl.invert
        for d in (np.int8, np.uint16, np.int32)
    ],
    Legal(
        "tensor_tensor",
        pairwise(nl.bitwise_xor, np.uint32),
        integers(np.int32, np.uint32),
        in_bits(nl.bitwise_xor, np.uint32),
    ),
    *[
        Legal("tensor_tensor", pairwise(nl.add, BF16, places), FLOATS, in_float32(nl.add, BF16))
        for places in PSUM_PLACES
    ],
    Legal("tensor_tensor", pairwise(nl.multiply, engine=nisa.engine.gpsimd), FLOATS, in_float32(nl.multiply)),
    Legal("tensor_tensor", in_place, FLOATS, in_place_expected),
    Legal(
        "tensor_tensor",
        gather(lambda dst, data: tensor(dst, data, filled((16, 16), 2.0))),
        gather_arrays,
        lambda a, index: gathered(a, index) + F32(2),
        TRN3,
    ),
    refused("tensor_tensor.shapes", lambda f, i, p: tensor(f[:, 0:4], f[:, 0:4], f[:, 0:1])),
    refused("tensor_tensor.shapes", lambda f, i, p: tensor(f[0:2], f[0:2], f)),
    refused("tensor_tensor.both-psum", lambda f, i, p: tensor(f, p, p)),
    refused("tensor_tensor.operator", lambda f, i, p: tensor(f, f, f, nl.exp)),
    refused("tensor_tensor.operator", lambda f, i, p: tensor(f, f, f, nl.abs)),
    refused("tensor_tensor.operator-target", lambda f, i, p: tensor(f, f, f, nl.abs_max)),
    refused("tensor_tensor.bitvec-dtype", lambda f, i, p: tensor(f, f, f, nl.bitwise_and)),
    refused("tensor_tensor.bitvec-dtype", lambda f, i, p: tensor(i, i, filled((4, 8), 1, np.int16), nl.bitwise_or)),
    refused("tensor_tensor.power-engine", lambda f, i, p: tensor(f, f, f, nl.power, engine=nisa.engine.vector)),
    refused("tensor_tensor.vector-engine", lambda f, i, p: tensor(i, i, i, nl.left_shift, engine=nisa.engine.gpsimd)),
    refused(
        "tensor_tensor.vector-engine", lambda f, i, p: tensor(f, f, f, nl.abs_min, engine=nisa.engine.gpsimd), "trn3"
    ),
    Breaks("tensor_tensor.indirect", gather(lambda dst, data: tensor(dst, dst, data)), gather_arrays, "trn3"),
    Breaks("tensor_tensor.indirect", gather(lambda dst, data: tensor(dst, data, dst)), gather_arrays, "trn2"),
    Breaks("tensor_tensor.indirect-partitions", misplaced(lambda dst, data: tensor(dst, data, dst)), nothing, "trn3"),
]
