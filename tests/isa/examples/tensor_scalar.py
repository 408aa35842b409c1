"""Examples of tensor_scalar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.elementwise_reference import (
    ABSOLUTE,
    ARITHMETIC,
    BITS,
    F32,
    UNARY,
    UNARY_NEW,
    cast,
    in_bits,
    in_float32,
)
from tests.isa.examples.elementwise import SMALL, TRN3, refused
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
    scattered_to_psum,
    store,
)


def scaled(op0: Any, operand0: Any, *rest: Any, dtype: Any = F32, places: Any = (nl.sbuf,) * 2, **options: Any) -> Any:
    """A kernel of the data and a column, which stands for operands that are `COLUMN`."""

    def kernel(a: Any, column: Any) -> Any:
        result, tile = empty(a.shape, dtype, places[0]), load(column)
        operands = [tile if value is COLUMN else value for value in (operand0, *rest)]
        nisa.tensor_scalar(result, load(a, places[1]), op0, *operands, **options)
        return store(result)

    return kernel


COLUMN = object()


def two_steps(
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    dtype: Any = F32,
) -> Callable[[Any, Any], np.ndarray]:
    """Both steps, one after the other, each rounded to float32, and the cast."""

    def expected(a: Any, column: Any) -> np.ndarray:
        result = a.astype(F32)
        for op, operand, reverse in ((op0, operand0, reverse0), (op1, operand1, reverse1)):
            if op is not None:
                other = np.empty_like(result)
                other[...] = column.reshape(-1, *[1] * (a.ndim - 1)) if operand is COLUMN else operand or 0
                result = in_float32(op)(other, result) if reverse and op not in UNARY else in_float32(op)(result, other)
        return cast(result, dtype)

    return expected


def same(
    *arguments: Any, targets: Any = ("trn1", "trn2", "trn3"), make: Any = None, rtol: float = 0.0, **options: Any
) -> Legal:
    """A legal tensor_scalar whose arguments are those of its reference."""
    dtype = options.get("dtype", F32)
    kernel = scaled(*arguments, **options)
    return Legal("tensor_scalar", kernel, make or SHAPES, two_steps(*arguments, dtype=dtype), targets, rtol=rtol)


def two_bit_steps(op0: Any, operand0: Any, op1: Any, operand1: Any, dtype: Any) -> Callable[[Any, Any], np.ndarray]:
    def expected(a: Any, column: Any) -> np.ndarray:
        result = a
        for op, operand in ((op0, operand0), (op1, operand1)):
            if op is not None:
                other = (
                    np.broadcast_to(column, a.shape) if operand is COLUMN else np.full(a.shape, operand or 0, object)
                )
                result = in_bits(op, dtype)(result, other)
        return result

    return expected


def bitwise(op0: Any, operand0: Any, op1: Any = None, operand1: Any = None, dtype: Any = np.int32) -> Legal:
    def make() -> tuple[Any, ...]:
        info = np.iinfo(dtype)
        r = np.random.default_rng(4)
        return r.integers(info.min, info.max + 1, (8, 12)).astype(dtype), r.integers(0, info.bits + 2, (8, 1)).astype(
            dtype
        )

    kernel = scaled(op0, operand0, False, op1, operand1, dtype=dtype)
    return Legal("tensor_scalar", kernel, make, two_bit_steps(op0, operand0, op1, operand1, dtype))


def positive() -> tuple[Any, ...]:
    return tuple(np.abs(v) + F32(0.5) for v in SHAPES())


def with_views(a: Any, column: Any) -> Any:
    """A strided source of another rank than its destination, a column inside a larger tensor."""
    data, table = load(a), load(column)
    result = filled((8, 30), 0.0)
    view = data.reshape((8, 3, 4))[:, :, 1:3]
    nisa.tensor_scalar(dst=result[:, 5:17:2], data=view, op0=nl.multiply, operand0=table[:, 1], op1=nl.add, operand1=1)
    return store(result)


def with_views_expected(a: Any, column: Any) -> np.ndarray:
    out = np.zeros((8, 30), F32)
    for n, i in enumerate((1, 2, 5, 6, 9, 10)):
        out[:, 5 + 2 * n] = a[:, i] * column[:, 1] + F32(1)
    return out


def scalar(dst: Any, data: Any, op0: Any = nl.add, operand0: Any = 1.0, **options: Any) -> Any:
    return nisa.tensor_scalar(dst, data, op0, operand0, **options)


def indirect_integers(a: Any, index: Any) -> Any:
    table, offsets, result = filled((16, 8), 3, np.int32), load(index), filled((16, 16), 0, np.int32)
    scalar(result, table.indirect(offsets, 16))
    return store(result)


SHAPES = arrays((8, 12), (8, 1), scale=3.0)
SCALAR, GPSIMD, VECTOR = nisa.engine.scalar, nisa.engine.gpsimd, nisa.engine.vector

EXAMPLES = [
    *[same(op, 1.0) for op in ARITHMETIC],
    *[same(op, COLUMN, True) for op in ARITHMETIC],
    *[same(op, -1.5, False, targets=TRN3) for op in ABSOLUTE],
    same(nl.power, 2.5, make=positive, rtol=1e-6),
    same(nl.power, 2.0, True, rtol=1e-6),
    *[same(op, operand, make=positive, rtol=1e-6) for op in UNARY for operand in (None, 0, 0.0)],
    *[same(op, None, targets=TRN3) for op in UNARY_NEW],
    same(nl.abs, 0.0, True),
    same(nl.add, 2, False, nl.rsqrt, None, make=positive, rtol=1e-6),
    same(nl.multiply, COLUMN, False, nl.add, COLUMN),
    same(nl.subtract, COLUMN, True, nl.subtract, 0.75, True),
    same(nl.maximum, -1.0, False, nl.minimum, COLUMN),
    same(nl.greater, 0.0, False, nl.multiply, COLUMN),
    same(None, None, False, nl.maximum, 0.25),
    *[
        same(nl.multiply, COLUMN, False, nl.add, 0.5, dtype=d, make=arrays((8, 12), (8, 1), scale=60.0))
        for d in (*SMALL, np.int32, np.uint32)
    ],
    *[
        Legal(
            "tensor_scalar",
            scaled(nl.multiply, 1.5, dtype=d),
            lambda d=d: (arrays((8, 12), dtype=d, scale=40.0)()[0], np.zeros((8, 1), F32)),
            two_steps(nl.multiply, 1.5, dtype=d),
        )
        for d in (*SMALL, np.int32)
    ],
    *[
        same(nl.multiply, COLUMN, False, nl.add, 2.0, places=places)
        for places in ((nl.psum, nl.sbuf), (nl.sbuf, nl.psum))
    ],
    same(nl.rsqrt, None, places=(nl.psum, nl.psum), make=positive, rtol=1e-6),
    same(nl.rsqrt, None, engine=GPSIMD, make=positive, rtol=1e-6),
    same(nl.multiply, COLUMN, False, nl.add, 2.0, engine=SCALAR),
    same(nl.multiply, -2.0, engine=SCALAR),
    same(nl.add, COLUMN, engine=SCALAR),
    same(nl.subtract, 1.0, True, nl.maximum, COLUMN, engine=SCALAR, targets=TRN3),
    *[
        bitwise(op, operand, dtype=d)
        for op in BITS
        for operand in ((None, 0) if op is nl.invert else (3, COLUMN))
        for d in (np.int8, np.uint16, np.int32)
    ],
    bitwise(nl.bitwise_and, 0xFFFF0000),
    bitwise(nl.bitwise_xor, -1, dtype=np.uint8),
    bitwise(nl.right_shift, 3, nl.bitwise_and, COLUMN, dtype=np.uint32),
    bitwise(nl.invert, None, nl.left_shift, 2.0, dtype=np.int16),
    Legal("tensor_scalar", with_views, arrays((8, 12), (8, 3)), with_views_expected),
    Legal(
        "tensor_scalar",
        gather(lambda dst, data: scalar(dst, data, nl.multiply, 3.0)),
        gather_arrays,
        lambda a, index: gathered(a, index) * F32(3),
        TRN3,
    ),
    refused("tensor_scalar.shapes", lambda f, i, p: scalar(f, f[:, 0:4])),
    refused("tensor_scalar.operator", lambda f, i, p: scalar(f, f, nl.exp, None)),
    refused("tensor_scalar.operator", lambda f, i, p: scalar(f, f, op1=nl.tanh, operand1=0.0)),
    refused("tensor_scalar.operator-target", lambda f, i, p: scalar(f, f, nl.abs_max)),
    refused("tensor_scalar.operator-target", lambda f, i, p: scalar(f, f, nl.relu, None)),
    refused("tensor_scalar.mixed-classes", lambda f, i, p: scalar(i, i, nl.bitwise_and, 1, op1=nl.add, operand1=1)),
    refused("tensor_scalar.operand0", lambda f, i, p: scalar(f, f, nl.add, None)),
    refused("tensor_scalar.operand0", lambda f, i, p: scalar(f, f, nl.abs, 1.0)),
    refused("tensor_scalar.operand0", lambda f, i, p: scalar(f, f, None, 1.0, op1=nl.add, operand1=1.0)),
    refused("tensor_scalar.operand1", lambda f, i, p: scalar(f, f, op1=nl.multiply)),
    refused("tensor_scalar.operand1", lambda f, i, p: scalar(f, f, operand1=0.0)),
    refused("tensor_scalar.operand1", lambda f, i, p: scalar(f, f, op1=nl.abs, operand1=f[:, 0:1])),
    refused("tensor_scalar.bitvec-dtype", lambda f, i, p: scalar(f, f, nl.invert, None)),
    refused("tensor_scalar.bitvec-dtype", lambda f, i, p: scalar(i, i, nl.bitwise_and, f[:, 0:1])),
    refused("tensor_scalar.bitvec-number", lambda f, i, p: scalar(i, i, nl.bitwise_and, 2**32)),
    refused("tensor_scalar.bitvec-number", lambda f, i, p: scalar(i, i, nl.left_shift, 0.5)),
    refused("tensor_scalar.operand-dtype", lambda f, i, p: scalar(f, f, operand0=i[:, 0:1])),
    refused("tensor_scalar.operand-partitions", lambda f, i, p: scalar(f, f, operand0=f[0:2, 0:1])),
    refused("tensor_scalar.bitvec-engine", lambda f, i, p: scalar(i, i, nl.bitwise_or, 1, engine=SCALAR), "trn3"),
    refused("tensor_scalar.bitvec-engine", lambda f, i, p: scalar(i, i, nl.bitwise_or, 1, engine=GPSIMD)),
    refused("tensor_scalar.scalar-engine", lambda f, i, p: scalar(f, f, nl.subtract, engine=SCALAR)),
    refused("tensor_scalar.scalar-engine", lambda f, i, p: scalar(f, f, op1=nl.multiply, operand1=2.0, engine=SCALAR)),
    refused("tensor_scalar.gpsimd-engine", lambda f, i, p: scalar(f, f, engine=GPSIMD)),
    Breaks("tensor_scalar.indirect", gather(scalar), gather_arrays, "trn2"),
    Breaks("tensor_scalar.indirect-partitions", misplaced(scalar), nothing, "trn3"),
    Breaks(
        "tensor_scalar.indirect-psum",
        scattered_to_psum(lambda dst, data: scalar(dst, data, engine=SCALAR)),
        nothing,
        "trn3",
    ),
    Breaks("tensor_scalar.indirect-address", indirect_integers, gather_arrays, "trn3"),
]
