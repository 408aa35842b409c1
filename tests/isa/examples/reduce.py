"""Examples of tensor_reduce, tensor_partition_reduce, tensor_scalar_reduce and tensor_scalar_cumulative."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import ml_dtypes
import numpy as np

import nki.language as nl
from nki.core import dtypes
from nki.isa import alu, functions
from nki.isa.reduce import tensor_partition_reduce, tensor_reduce, tensor_scalar_cumulative, tensor_scalar_reduce
from nki.spec.engine import reduce_cmd
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import (
    arrays,
    bf16,
    breaks,
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

NEW = ("trn3",)


# ---- tensor_reduce


def make(op: Any, axis: Any, shape: Any, dtype: Any = np.float32, buffer: Any = nl.sbuf, **options: Any) -> Any:
    def kernel(a: Any) -> Any:
        result = empty(shape, dtype, buffer)
        tensor_reduce(dst=result, op=op, data=load(a, buffer), axis=axis, **options)
        return store(result)

    return kernel


def strided(a: Any) -> Any:
    tile, result = load(a), filled((16, 4), -1.0)
    tensor_reduce(result[:, 1:3], alu.MAXIMUM, tile[:, 1:5:2, 3:9], axis=2)
    return store(result)


def strided_expected(a: Any) -> Any:
    result = np.full((16, 4), -1.0)
    for p, i in itertools.product(range(16), range(2)):
        result[p, 1 + i] = max(float(a[p, 1 + 2 * i, j]) for j in range(3, 9))
    return result


def folded(function: Any) -> Any:
    """Reference of a reduction of the last dimension by Python's own reduce, kept with size 1."""

    def expected(a: Any) -> Any:
        rows = a.reshape(-1, a.shape[-1]).tolist()
        return np.array([functools.reduce(function, row) for row in rows]).reshape(*a.shape[:-1], 1)

    return expected


CUBE = arrays((16, 6, 10))
BITS = {"dtype": np.int32, "scale": 1e9}

TENSOR_REDUCE = [
    Legal("tensor_reduce", make(alu.ADD, 1, (128, 1)), arrays((128, 300)), folded(operator.add), rtol=1e-5, atol=1e-5),
    Legal("tensor_reduce", make(alu.MAXIMUM, (1, 2), (16, 1)), CUBE, lambda a: a.max((1, 2)).reshape(16, 1)),
    Legal("tensor_reduce", make(alu.MINIMUM, -1, (16, 6), buffer=nl.psum), CUBE, lambda a: a.min(2)),
    Legal(
        "tensor_reduce",
        make(alu.MULTIPLY, [2], (16, 6, 1), dtypes.bfloat16, keepdims=True),
        CUBE,
        lambda a: bf16(a.astype(np.float64).prod(2, keepdims=True)),
        rtol=2**-7,
    ),
    Legal(
        "tensor_reduce",
        make(alu.SUBTRACT, 1, (8, 1), negate=True),
        arrays((8, 40)),
        lambda a: -(2 * a[:, :1].astype(np.float64) - a.sum(1, keepdims=True, dtype=np.float64)),
        rtol=1e-5,
        atol=1e-5,
    ),
    Legal("tensor_reduce", make(alu.ADD, 1, (8, 1), np.int32), arrays((8, 40), dtype=np.int32), folded(operator.add)),
    Legal("tensor_reduce", make(alu.BITWISE_AND, 1, (8, 1), np.int32), arrays((8, 2), **BITS), folded(operator.and_)),
    Legal(
        "tensor_reduce",
        make(alu.BITWISE_OR, 2, (4, 5), np.int32),
        arrays((4, 5, 3), **BITS),
        lambda a: a[..., 0] | a[..., 1] | a[..., 2],
    ),
    Legal("tensor_reduce", make(alu.BITWISE_XOR, 1, (8, 1), np.int32), arrays((8, 9), **BITS), folded(operator.xor)),
    Legal(
        "tensor_reduce",
        make(alu.LOGICAL_XOR, 1, (8, 1)),
        arrays((8, 9), scale=0.6, dtype=np.int8),
        lambda a: (np.count_nonzero(a, axis=1, keepdims=True) % 2).astype(np.float32),
    ),
    Legal(
        "tensor_reduce",
        make(alu.LOGICAL_AND, 1, (8, 1), np.uint8),
        arrays((8, 3), dtype=np.int8),
        lambda a: np.array([[all(row)] for row in a]),
    ),
    Legal(
        "tensor_reduce",
        make(alu.LOGICAL_OR, 1, (8, 1), np.uint8),
        arrays((8, 3), scale=0.6, dtype=np.int8),
        lambda a: np.array([[any(row)] for row in a]),
    ),
    Legal("tensor_reduce", strided, arrays((16, 6, 10)), strided_expected),
    Legal(
        "tensor_reduce",
        gather(lambda d, s: tensor_reduce(d[:, 0:1], alu.MAXIMUM, s, axis=1)),
        gather_arrays,
        lambda a, i: np.hstack([gathered(a, i).max(1, keepdims=True), np.zeros((16, 15))]),
        targets=NEW,
    ),
    breaks("tensor_reduce.operator", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.POWER, s, 1)),
    breaks("tensor_reduce.operator", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.AVERAGE, s, 1)),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.ADD, s, (0, 1))),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d[:, 0:4], alu.ADD, s.reshape((4, 2, 4)), 1)),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.ADD, s.reshape((4, 2, 2, 2)), (1, 3))),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.ADD, s, 2)),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.ADD, s, -2)),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.ADD, s, (1, -1))),
    breaks("tensor_reduce.axis", lambda d, s, c: tensor_reduce(d, alu.ADD, s, ())),
    breaks("tensor_reduce.shapes", lambda d, s, c: tensor_reduce(d[:, 0:2], alu.ADD, s, 1)),
    breaks("tensor_reduce.shapes", lambda d, s, c: tensor_reduce(d[0:2, 0:1], alu.ADD, s, 1)),
    breaks(
        "tensor_reduce.negate",
        lambda d, s, c: tensor_reduce(
            filled((4, 1), 0, np.int32), alu.BITWISE_OR, filled((4, 8), 0, np.int32), 1, negate=True
        ),
    ),
    breaks("tensor_reduce.bitvec-dtype", lambda d, s, c: tensor_reduce(d[:, 0:1], alu.BITWISE_OR, s, 1)),
    Breaks("tensor_reduce.indirect", gather(lambda d, s: tensor_reduce(d[:, 0:1], alu.ADD, s, axis=1)), gather_arrays),
    Breaks(
        "tensor_reduce.indirect-partitions",
        misplaced(lambda d, s: tensor_reduce(d[:, 0:1], alu.ADD, s, axis=1)),
        nothing,
        "trn3",
    ),
]


# ---- tensor_partition_reduce


def across(op: Any, dtype: Any = np.float32) -> Any:
    def kernel(a: Any) -> Any:
        result = empty((1, *a.shape[1:]), dtype)
        tensor_partition_reduce(result, op, load(a))
        return store(result)

    return kernel


PARTITION_REDUCE = [
    Legal(
        "tensor_partition_reduce",
        across(alu.ADD),
        arrays((100, 3, 5)),
        lambda a: a.sum(0, keepdims=True, dtype=np.float64),
        rtol=1e-5,
        atol=1e-5,
    ),
    Legal(
        "tensor_partition_reduce",
        across(alu.AVERAGE, dtypes.bfloat16),
        arrays((7, 9)),
        lambda a: bf16(a.mean(0, keepdims=True, dtype=np.float64)),
        rtol=2**-7,
    ),
    Legal("tensor_partition_reduce", across(alu.MAXIMUM), arrays((128, 9)), lambda a: a.max(0, keepdims=True)),
    Legal(
        "tensor_partition_reduce",
        across(alu.BITWISE_OR, np.int32),
        arrays((3, 9), **BITS),
        lambda a: (a[0] | a[1] | a[2])[None],
    ),
    Legal(
        "tensor_partition_reduce",
        across(alu.BITWISE_AND, np.int32),
        arrays((2, 9), **BITS),
        lambda a: (a[0] & a[1])[None],
    ),
    breaks("tensor_partition_reduce.operator", lambda d, s, c: tensor_partition_reduce(d[0:1], alu.MINIMUM, s)),
    breaks("tensor_partition_reduce.shapes", lambda d, s, c: tensor_partition_reduce(d, alu.ADD, s)),
    breaks("tensor_partition_reduce.shapes", lambda d, s, c: tensor_partition_reduce(d[0:1, 0:4], alu.ADD, s)),
    breaks("tensor_partition_reduce.bitvec-dtype", lambda d, s, c: tensor_partition_reduce(d[0:1], alu.BITWISE_OR, s)),
    Breaks(
        "tensor_partition_reduce.indirect",
        gather(lambda d, s: tensor_partition_reduce(d[0:1], alu.ADD, s)),
        gather_arrays,
        "trn3",
    ),
]


# ---- tensor_scalar_reduce


def scaled_maximum(a: Any, scale: Any) -> Any:
    """As in attention: scale a PSUM tile, keep the maximum; then its negative, of two tiles."""
    result, first, both = (
        empty(a.shape, dtypes.bfloat16),
        empty((a.shape[0], 1)),
        empty((a.shape[0], 1), buffer=nl.psum),
    )
    tile = load(a, nl.psum)
    tensor_scalar_reduce(result, tile, alu.MULTIPLY, load(scale), alu.MAXIMUM, first)
    tensor_scalar_reduce(
        result, tile, alu.ADD, 3.0, alu.MAXIMUM, both, reduce_cmd=reduce_cmd.reduce, reduce_res_negate=True
    )
    return store(result), store(first), store(both)


def scaled_maximum_expected(a: Any, scale: Any) -> Any:
    first = (a * scale).max(1, keepdims=True)
    return bf16(a + np.float32(3)), first, -np.maximum(first, (a + np.float32(3)).max(1, keepdims=True))


def chain(reduce_op: Any) -> Any:
    """Three pieces, of which only the last writes the result; the first starts from a value."""

    def kernel(a: Any, start: Any) -> Any:
        tile, junk, total = load(a), empty((8, 4)), empty((8, 1))
        load_reduce = {"reduce_cmd": reduce_cmd.load_reduce, "reduce_init": load(start)}
        tensor_scalar_reduce(junk, tile[:, 0:4], alu.ABS, 0.0, reduce_op, **load_reduce)
        tensor_scalar_reduce(junk, tile[:, 4:8], alu.ABS, 0.0, reduce_op, reduce_cmd=reduce_cmd.reduce)
        tensor_scalar_reduce(junk, tile[:, 8:12], alu.ABS, 0, reduce_op, total, reduce_cmd=reduce_cmd.reduce)
        return store(total)

    return kernel


def chain_expected(function: Any) -> Any:
    def expected(a: Any, start: Any) -> Any:
        rows = [[float(s[0]), *map(float, np.abs(row))] for row, s in zip(a, start, strict=True)]
        return np.array([[functools.reduce(function, row)] for row in rows])

    return expected


def squares(a: Any) -> Any:
    result, total = empty(a.shape), empty((a.shape[0], 1))
    tensor_scalar_reduce(result, load(a), alu.SQUARE, 0.0, alu.ADD, total)
    return store(result), store(total)


def times(dst: Any, data: Any, **options: Any) -> Any:
    return tensor_scalar_reduce(dst, data, alu.MULTIPLY, 2.0, alu.ADD, **options)


SCALAR_REDUCE = [
    Legal("tensor_scalar_reduce", scaled_maximum, arrays((64, 20), (64, 1)), scaled_maximum_expected),
    *[
        Legal("tensor_scalar_reduce", chain(op), arrays((8, 12), (8, 1)), chain_expected(function), rtol=1e-5)
        for op, function in (
            (alu.ADD, operator.add),
            (alu.MULTIPLY, operator.mul),
            (alu.MINIMUM, min),
            (alu.MAXIMUM, max),
        )
    ],
    Legal(
        "tensor_scalar_reduce",
        squares,
        arrays((8, 30)),
        lambda a: (a * a, np.square(a, dtype=np.float64).sum(1, keepdims=True)),
        targets=NEW,
        rtol=1e-6,
    ),
    Legal("tensor_scalar_reduce", gather(times), gather_arrays, lambda a, i: gathered(a, i) * 2, targets=NEW),
    breaks("tensor_scalar_reduce.shapes", lambda d, s, c: times(d[:, 0:4], s)),
    breaks(
        "tensor_scalar_reduce.operator",
        lambda d, s, c: tensor_scalar_reduce(d, s, alu.BITWISE_OR, 1, alu.ADD),
    ),
    breaks(
        "tensor_scalar_reduce.operator",
        lambda d, s, c: tensor_scalar_reduce(d, s, functions.EXP, 0.0, alu.ADD),
    ),
    breaks("tensor_scalar_reduce.operator-target", lambda d, s, c: tensor_scalar_reduce(d, s, alu.RELU, 0.0, alu.ADD)),
    breaks(
        "tensor_scalar_reduce.operator-target",
        lambda d, s, c: tensor_scalar_reduce(d, s, alu.ABS_MAX, 1.0, alu.ADD),
    ),
    breaks("tensor_scalar_reduce.operand", lambda d, s, c: tensor_scalar_reduce(d, s, alu.ABS, 1.0, alu.ADD)),
    breaks("tensor_scalar_reduce.reverse", lambda d, s, c: times(d, s, reverse0=True)),
    breaks("tensor_scalar_reduce.reduce-op", lambda d, s, c: tensor_scalar_reduce(d, s, alu.ADD, 1.0, alu.SUBTRACT)),
    breaks("tensor_scalar_reduce.reduce-cmd", lambda d, s, c: times(d, s, reduce_cmd=reduce_cmd.idle)),
    breaks("tensor_scalar_reduce.reduce-init", lambda d, s, c: times(d, s, reduce_cmd=reduce_cmd.load_reduce)),
    breaks("tensor_scalar_reduce.reduce-init-unused", lambda d, s, c: times(d, s, reduce_init=1.0)),
    breaks(
        "tensor_scalar_reduce.column-partitions",
        lambda d, s, c: tensor_scalar_reduce(d, s, alu.ADD, c[0:2], alu.ADD),
    ),
    breaks("tensor_scalar_reduce.reduce-res", lambda d, s, c: times(d, s, reduce_res=s)),
    breaks("tensor_scalar_reduce.reduce-res-negate", lambda d, s, c: times(d, s, reduce_res_negate=True)),
    Breaks("tensor_scalar_reduce.indirect", gather(times), gather_arrays),
    Breaks("tensor_scalar_reduce.indirect-partitions", misplaced(times), nothing, "trn3"),
]


# ---- tensor_scalar_cumulative


def running(op0: Any, op1: Any, dtype: Any = np.float32) -> Any:
    """Two pieces of one sequence, the second with the state of the first; then once more from a column."""

    def kernel(a: Any, imm0: Any, start: Any) -> Any:
        tile, first, again = load(a), empty(a.shape, dtype), empty(a.shape, dtype)
        half = a.shape[1] // 2
        operand = load(imm0)
        tensor_scalar_cumulative(first[:, 0:half], tile[:, 0:half], op0, op1, operand)
        tensor_scalar_cumulative(first[:, half:], tile[:, half:], op0, op1, operand, reduce_cmd=reduce_cmd.reduce)
        tensor_scalar_cumulative(again, tile, op0, op1, operand, load(start), reduce_cmd.load_reduce)
        return store(first), store(again)

    return kernel


_IDENTITY = {alu.ADD: 0.0, alu.SUBTRACT: 0.0, alu.MULTIPLY: 1.0, alu.MAXIMUM: -np.inf, alu.MINIMUM: np.inf}
_PYTHON = {alu.ADD: operator.add, alu.SUBTRACT: operator.sub, alu.MULTIPLY: operator.mul}
_PYTHON |= {alu.MAXIMUM: max, alu.MINIMUM: min}


def running_expected(op0: Any, op1: Any, dtype: Any = np.float32) -> Any:
    def row(values: Any, immediate: Any, state: Any) -> Any:
        out = []
        for value in values:
            state = np.float32(_PYTHON[op1](np.float32(_PYTHON[op0](np.float32(value), immediate)), state))
            out.append(state)
        return out

    def expected(a: Any, imm0: Any, start: Any) -> Any:
        fresh = [row(v, i[0], np.float32(_IDENTITY[op1])) for v, i in zip(a, imm0, strict=True)]
        again = [row(v, i[0], s[0]) for v, i, s in zip(a, imm0, start, strict=True)]
        return np.array(fresh).astype(dtype), np.array(again).astype(dtype)

    return expected


def cumulative(dst: Any, src: Any, **options: Any) -> Any:
    return tensor_scalar_cumulative(dst, src, alu.ADD, alu.ADD, 1.0, **options)


CUMULATIVE = [
    *[
        Legal(
            "tensor_scalar_cumulative",
            running(op0, op1, dtype),
            arrays((16, 14), (16, 1), (16, 1), scale=1.0),
            running_expected(op0, op1, dtype),
        )
        for op0, op1, dtype in (
            (alu.MULTIPLY, alu.ADD, np.float32),
            (alu.ADD, alu.SUBTRACT, np.float32),
            (alu.SUBTRACT, alu.MULTIPLY, ml_dtypes.bfloat16),
            (alu.MAXIMUM, alu.MAXIMUM, np.float16),
            (alu.ADD, alu.MINIMUM, np.float32),
        )
    ],
    Legal(
        "tensor_scalar_cumulative",
        gather(cumulative),
        gather_arrays,
        lambda a, i: np.cumsum(gathered(a, i).astype(np.float64) + 1, axis=1),
        targets=NEW,
        rtol=1e-6,
    ),
    breaks("tensor_scalar_cumulative.shapes", lambda d, s, c: cumulative(d[:, 0:4], s)),
    breaks(
        "tensor_scalar_cumulative.operator",
        lambda d, s, c: tensor_scalar_cumulative(d, s, functions.EXP, alu.ADD, 0.0),
    ),
    breaks(
        "tensor_scalar_cumulative.operator-target",
        lambda d, s, c: tensor_scalar_cumulative(d, s, alu.SQUARE, alu.ADD, 0.0),
    ),
    breaks(
        "tensor_scalar_cumulative.operand",
        lambda d, s, c: tensor_scalar_cumulative(d, s, alu.ABS, alu.ADD, 1.0),
    ),
    breaks(
        "tensor_scalar_cumulative.running-operator",
        lambda d, s, c: tensor_scalar_cumulative(d, s, alu.ADD, alu.LOGICAL_OR, 1.0),
    ),
    breaks("tensor_scalar_cumulative.reduce-cmd", lambda d, s, c: cumulative(d, s, reduce_cmd=reduce_cmd.idle)),
    breaks("tensor_scalar_cumulative.reduce-init", lambda d, s, c: cumulative(d, s, reduce_cmd=reduce_cmd.load_reduce)),
    breaks("tensor_scalar_cumulative.reduce-init-unused", lambda d, s, c: cumulative(d, s, imm1=1.0)),
    breaks(
        "tensor_scalar_cumulative.column-partitions",
        lambda d, s, c: tensor_scalar_cumulative(d, s, alu.ADD, alu.ADD, c[0:2]),
    ),
    Breaks("tensor_scalar_cumulative.indirect", gather(cumulative), gather_arrays),
    Breaks("tensor_scalar_cumulative.indirect-partitions", misplaced(cumulative), nothing, "trn3"),
]

EXAMPLES = [*TENSOR_REDUCE, *PARTITION_REDUCE, *SCALAR_REDUCE, *CUMULATIVE]
