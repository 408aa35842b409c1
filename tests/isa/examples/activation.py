"""Examples of activation, activation_reduce, activate2, exponential and reciprocal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special

import nki.language as nl
from nki.core import dtypes
from nki.isa import alu, functions
from nki.isa.activations import activate2, activation, activation_reduce, exponential, reciprocal
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
    scattered_to_psum,
    store,
)

FAR = ("trn2", "trn3")
NEW = ("trn3",)
RESET_REDUCE = {"reduce_op": alu.ADD, "reduce_cmd": reduce_cmd.reset_reduce}


# ---- activation


def make(op: Any, dtype: Any = np.float32, data: Any = nl.sbuf, dst: Any = nl.sbuf, **options: Any) -> Any:
    """``activation`` of the argument, with numbers as scale and bias."""

    def kernel(a: Any) -> Any:
        result = empty(a.shape, dtype, dst)
        activation(dst=result, op=op, data=load(a, data), **options)
        return store(result)

    return kernel


def scale_and_bias(a: Any, scale: Any, bias: Any) -> Any:
    result = empty(a.shape)
    activation(result, functions.TANH, load(a), bias=load(bias), scale=load(scale))
    return store(result)


def bf16_bias(a: Any, bias: Any) -> Any:
    result = empty(a.shape, dtypes.bfloat16)
    activation(result, functions.COPY, load(a, nl.psum), bias=load(bias, dtype=dtypes.bfloat16), scale=0.25)
    return store(result)


def strided(a: Any) -> Any:
    """Every second column of every second row block, into a tile of another rank."""
    tile, result = load(a), filled((8, 3, 5), -1.0)
    activation(dst=result[:, 0:2, :], op=functions.EXP, data=tile[:, 0:20:2])
    return store(result)


def strided_expected(a: Any) -> Any:
    result = np.full((8, 3, 5), -1.0)
    for p in range(8):
        for i in range(10):
            result[p, i // 5, i % 5] = math.exp(a[p, 2 * i])
    return result


def summed(a: Any) -> Any:
    """The sum of two tiles without leaving the engine, and what reset and idle leave behind."""
    tile, junk = load(a), empty(a.shape)
    first, second, zero, kept = (empty((a.shape[0], 1)) for _ in range(4))
    activation(junk, functions.SIGMOID, tile, reduce_op=alu.ADD, reduce_cmd=reduce_cmd.reset)
    activation(junk, functions.COPY, tile, reduce_res=zero)
    activation(junk, functions.SIGMOID, tile, reduce_op=alu.ADD, reduce_cmd=reduce_cmd.reduce, reduce_res=first)
    activation(junk, functions.COPY, tile, reduce_op=alu.ADD, reduce_cmd=reduce_cmd.reduce, reduce_res=second)
    activation(junk, functions.SIGN, tile, reduce_res=kept)
    return store(zero), store(first), store(second), store(kept)


def summed_expected(a: Any) -> Any:
    first = scipy.special.expit(a.astype(np.float64)).sum(1, keepdims=True)
    second = first + a.astype(np.float64).sum(1, keepdims=True)
    return np.zeros((a.shape[0], 1)), first, second, second


def softmax(a: Any) -> Any:
    """The usual softmax of rows, with the maximum as a bias."""
    tile, result, total = load(a), empty(a.shape), empty((a.shape[0], 1))
    activation(result, functions.EXP, tile, bias=filled((a.shape[0], 1), -3.0), reduce_res=total, **RESET_REDUCE)
    reciprocal(total, total)
    activation(result, functions.COPY, result, scale=total)
    return store(result)


def into_its_own_result(a: Any) -> Any:
    """reduce_res is a column of dst: the sum must survive."""
    tile, result = load(a), empty(a.shape)
    activation(result, alu.SQUARE, tile, reduce_res=result[:, 2:3], **RESET_REDUCE)
    return store(result)


def into_its_own_result_expected(a: Any) -> Any:
    result = a.astype(np.float64) ** 2
    total = result.sum(1)
    result[:, 2] = total
    return result


def plain(dst: Any, data: Any) -> Any:
    return activation(dst, functions.EXP, data)


WIDE = arrays((128, 40))
SMALL = arrays((8, 24))

ACTIVATION = [
    Legal("activation", make(functions.EXP), WIDE, lambda a: np.exp(a.astype(np.float64)), rtol=3e-7),
    Legal(
        "activation",
        make(functions.GELU, dtypes.bfloat16, scale=0.5),
        WIDE,
        lambda a: bf16(a / 2 * scipy.special.ndtr(a.astype(np.float64) / 2)),
        rtol=2**-7,
        atol=1e-30,
    ),
    Legal("activation", make(functions.COPY, np.int8, nl.psum, nl.psum, scale=10.0), WIDE, lambda a: _int8(a * 10)),
    Legal("activation", make(functions.COPY, np.int8), arrays((8, 6), dtype=np.int8, scale=90), lambda a: a),
    Legal("activation", make(functions.COPY, bias=0.0), SMALL, lambda a: a),
    Legal(
        "activation",
        make(alu.RELU, bias=0.5, scale=-2.0),
        SMALL,
        lambda a: np.where(0.5 - 2 * a > 0, np.float32(0.5) - 2 * a, 0),
        targets=FAR,
        rtol=1e-6,
    ),
    Legal(
        "activation",
        scale_and_bias,
        arrays((8, 24), (8, 1), (8, 1)),
        lambda a, scale, bias: np.tanh(a.astype(np.float64) * scale + bias),
        rtol=2e-6,
    ),
    Legal(
        "activation",
        bf16_bias,
        arrays((8, 24), (8, 1)),
        lambda a, bias: bf16(a * np.float32(0.25) + bf16(bias).astype(np.float32)),
        targets=FAR,
    ),
    Legal(
        "activation",
        make(alu.RECIPROCAL, bias=4.0),
        arrays((8, 24), scale=0.5),
        lambda a: 1 / (a.astype(np.float64) + 4),
        targets=FAR,
        rtol=3e-7,
    ),
    Legal("activation", strided, SMALL, strided_expected, rtol=3e-7),
    Legal("activation", summed, WIDE, summed_expected, rtol=2e-6, atol=2e-5),
    Legal("activation", softmax, WIDE, lambda a: scipy.special.softmax(a.astype(np.float64), axis=1), rtol=2e-6),
    Legal("activation", into_its_own_result, SMALL, into_its_own_result_expected, rtol=1e-6),
    Legal("activation", gather(plain), gather_arrays, lambda a, i: np.exp(gathered(a, i)), targets=NEW, rtol=3e-7),
]


def _int8(values: Any) -> Any:
    return np.clip(np.rint(values), -128, 127).astype(np.int8)


def common_breaks(name: str, call: Any) -> list[Breaks]:
    """What activation and activation_reduce refuse alike; `call(dst, op, data, **options)`."""
    exp, rcp = functions.EXP, alu.RECIPROCAL
    return [
        breaks(f"{name}.shapes", lambda d, s, c: call(d[:, 0:4], exp, s)),
        breaks(f"{name}.function", lambda d, s, c: call(d, alu.ADD, s)),
        breaks(f"{name}.column-partitions", lambda d, s, c: call(d, exp, s, scale=filled((5, 1)))),
        breaks(f"{name}.column-partitions", lambda d, s, c: call(d, exp, s, bias=filled((5, 1)))),
        breaks(f"{name}.bias-immediate", lambda d, s, c: call(d, exp, s, bias=1.0), "trn1"),
        breaks(f"{name}.reciprocal-bias", lambda d, s, c: call(d, rcp, s, bias=c), "trn1"),
        breaks(f"{name}.prelu-slope", lambda d, s, c: call(d, functions.PRELU, s)),
        Breaks(f"{name}.indirect", gather(lambda d, s: call(d, exp, s)), gather_arrays),
        Breaks(f"{name}.indirect-partitions", misplaced(lambda d, s: call(d, exp, s)), nothing, "trn3"),
        Breaks(f"{name}.indirect-psum", scattered_to_psum(lambda d, s: call(d, exp, s)), nothing, "trn3"),
    ]


EXP = functions.EXP
ACTIVATION += [
    *common_breaks("activation", activation),
    breaks("activation.copy-bias", lambda d, s, c: activation(d, functions.COPY, s, bias=c), "trn1"),
    breaks(
        "activation.reduce-op",
        lambda d, s, c: activation(d, EXP, s, reduce_op=alu.MAXIMUM, reduce_cmd=reduce_cmd.reduce),
    ),
    breaks("activation.reduce-op-missing", lambda d, s, c: activation(d, EXP, s, reduce_cmd=reduce_cmd.reset_reduce)),
    breaks("activation.reduce-op-unused", lambda d, s, c: activation(d, EXP, s, reduce_op=alu.ADD)),
    breaks(
        "activation.reduce-cmd",
        lambda d, s, c: activation(d, EXP, s, reduce_op=alu.ADD, reduce_cmd=reduce_cmd.load_reduce),
    ),
    breaks("activation.reduce-res", lambda d, s, c: activation(d, EXP, s, reduce_res=d, **RESET_REDUCE)),
    breaks("activation.reduce-res", lambda d, s, c: activation(d, EXP, s, reduce_res=c[0:2], **RESET_REDUCE)),
]


# ---- activation_reduce


def make_reduce(a: Any, bias: Any) -> Any:
    tile = load(a, nl.psum)
    result, total = empty(a.shape, dtypes.bfloat16), empty((a.shape[0], 1), buffer=nl.psum)
    activation_reduce(result, alu.SQUARE, tile, alu.ADD, total, bias=load(bias), scale=0.5)
    return store(result), store(total)


def make_reduce_expected(a: Any, bias: Any) -> Any:
    """The sum is that of the values before they round to bfloat16."""
    square = (a.astype(np.float64) / 2 + bias) ** 2
    return bf16(square), square.sum(1, keepdims=True)


def reduced(dst: Any, op: Any, data: Any, reduce_op: Any = alu.ADD, result: Any = None, **options: Any) -> Any:
    total = filled((data.shape[0], 1)) if result is None else result
    return activation_reduce(dst, op, data, reduce_op, total, **options)


ACTIVATION_REDUCE = [
    Legal("activation_reduce", make_reduce, arrays((128, 40), (128, 1)), make_reduce_expected, rtol=2**-7, atol=1e-12),
    *common_breaks("activation_reduce", reduced),
    breaks("activation_reduce.reduce-op", lambda d, s, c: reduced(d, EXP, s, alu.MAXIMUM)),
    breaks("activation_reduce.reduce-res", lambda d, s, c: reduced(d, EXP, s, result=s)),
]


# ---- activate2


def make2(op: Any, imm0: Any, imm1: Any, op0: Any, op1: Any, **options: Any) -> Any:
    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        activate2(result, op, load(a), imm0, imm1, op0, op1, **options)
        return store(result)

    return kernel


def columns2(a: Any, first: Any, second: Any) -> Any:
    result = empty(a.shape)
    operands = load(first), load(second)
    activate2(result, functions.COPY, load(a), *operands, alu.MULTIPLY, alu.SUBTRACT, reverse1=True)
    return store(result)


def prelu2(a: Any, slope: Any) -> Any:
    result = empty(a.shape)
    activate2(result, functions.PRELU, load(a), 0.0, 0.0, alu.BYPASS, alu.BYPASS, relu_param=load(slope))
    return store(result)


def reduce2(operator: Any) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        junk, total, reset = empty(a.shape), empty((a.shape[0], 1)), empty((a.shape[0], 1))
        rest = (0.0, 0.0, alu.BYPASS, alu.BYPASS)
        activate2(
            junk, functions.COPY, load(b), *rest, reduce_op=operator, reduce_cmd=reduce_cmd.reset, reduce_res=reset
        )
        activate2(junk, functions.COPY, load(a), *rest, reduce_op=operator, reduce_cmd=reduce_cmd.reset_reduce)
        command = reduce_cmd.reduce
        activate2(junk, functions.COPY, load(b), *rest, reduce_op=operator, reduce_cmd=command, reduce_res=total)
        return store(total), store(reset)

    return kernel


def reduced2(operator: Any, identity: float) -> Any:
    """The reference of reduce2: Python's own max, min and sum."""

    def choose(row: Any) -> float:
        values = [float(v) for v in row]
        if operator == alu.ADD:
            return math.fsum(values)
        if operator in (alu.ABS_MAX, alu.ABS_MIN):
            return (max if operator == alu.ABS_MAX else min)(values, key=abs)
        return (max if operator == alu.MAXIMUM else min)(values)

    def expected(a: Any, b: Any) -> Any:
        rows = [[choose(np.concatenate([x, y]))] for x, y in zip(a, b, strict=True)]
        return np.array(rows), np.full((len(a), 1), identity)

    return expected


_INF = float("inf")
MADD = (2.0, 0.5, alu.MULTIPLY, alu.ADD)


def scaled2(dst: Any, op: Any, data: Any, **options: Any) -> Any:
    return activate2(dst, op, data, *MADD, **options)


ACTIVATE2 = [
    Legal(
        "activate2",
        make2(functions.SOFTPLUS, *MADD),
        WIDE,
        lambda a: np.logaddexp(0, a.astype(np.float64) * 2 + 0.5),
        targets=NEW,
        rtol=3e-6,
    ),
    Legal(
        "activate2",
        columns2,
        arrays((8, 24), (8, 1), (8, 1)),
        lambda a, b, c: c - a * b,
        targets=NEW,
    ),
    Legal(
        "activate2",
        make2(functions.COPY, 1.5, 0.0, alu.SUBTRACT, alu.BYPASS, reverse0=True),
        SMALL,
        lambda a: np.float32(1.5) - a,
        targets=NEW,
    ),
    Legal("activate2", make2(alu.ABS, 1.5, 0.0, alu.ADD, alu.BYPASS), SMALL, lambda a: abs(a + np.float32(1.5)), NEW),
    Legal(
        "activate2",
        prelu2,
        arrays((8, 24), (8, 1)),
        lambda a, slope: np.array([[v if v > 0 else v * s[0] for v in row] for row, s in zip(a, slope, strict=True)]),
        targets=NEW,
    ),
    *[
        Legal("activate2", reduce2(op), arrays((8, 24), (8, 24)), reduced2(op, identity), NEW, rtol=1e-5, atol=1e-5)
        for op, identity in (
            (alu.ADD, 0.0),
            (alu.MAXIMUM, -_INF),
            (alu.MINIMUM, _INF),
            (alu.ABS_MAX, 0.0),
            (alu.ABS_MIN, _INF),
        )
    ],
    Legal(
        "activate2",
        gather(lambda d, s: scaled2(d, functions.COPY, s)),
        gather_arrays,
        lambda a, i: gathered(a, i) * 2 + np.float32(0.5),
        targets=NEW,
    ),
    breaks("activate2.shapes", lambda d, s, c: scaled2(d[:, 0:4], EXP, s), "trn3"),
    breaks("activate2.function", lambda d, s, c: scaled2(d, alu.MAXIMUM, s), "trn3"),
    breaks("activate2.stages", lambda d, s, c: activate2(d, EXP, s, 1.0, 1.0, alu.ADD, alu.MULTIPLY), "trn3"),
    breaks(
        "activate2.reverse",
        lambda d, s, c: activate2(d, EXP, s, 1.0, 1.0, alu.ADD, alu.BYPASS, reverse1=True),
        "trn3",
    ),
    breaks(
        "activate2.immediate-dtypes",
        lambda d, s, c: activate2(d, EXP, s, c, filled((4, 1), 0.0, dtypes.bfloat16), alu.MULTIPLY, alu.ADD),
        "trn3",
    ),
    breaks(
        "activate2.column-partitions",
        lambda d, s, c: activate2(d, EXP, s, c[0:2], 0.0, alu.MULTIPLY, alu.ADD),
        "trn3",
    ),
    breaks("activate2.relu-param", lambda d, s, c: scaled2(d, EXP, s, relu_param=0.5), "trn3"),
    breaks(
        "activate2.reduce-op",
        lambda d, s, c: scaled2(d, EXP, s, reduce_op=alu.MULTIPLY, reduce_cmd=reduce_cmd.reset_reduce),
        "trn3",
    ),
    breaks("activate2.reduce-op-missing", lambda d, s, c: scaled2(d, EXP, s, reduce_cmd=reduce_cmd.reduce), "trn3"),
    breaks("activate2.reduce-op-unused", lambda d, s, c: scaled2(d, EXP, s, reduce_op=alu.ADD), "trn3"),
    breaks(
        "activate2.reduce-cmd",
        lambda d, s, c: scaled2(d, EXP, s, reduce_op=alu.ADD, reduce_cmd=reduce_cmd.load_reduce),
        "trn3",
    ),
    breaks("activate2.reduce-res", lambda d, s, c: scaled2(d, EXP, s, reduce_res=s, **RESET_REDUCE), "trn3"),
    Breaks(
        "activate2.indirect",
        gather(lambda d, c: activate2(d, EXP, filled((16, 16)), c, 0.0, alu.MULTIPLY, alu.ADD), 1),
        gather_arrays,
        "trn3",
    ),
    Breaks("activate2.indirect-partitions", misplaced(lambda d, s: scaled2(d, EXP, s)), nothing, "trn3"),
    Breaks("activate2.indirect-psum", scattered_to_psum(lambda d, s: scaled2(d, EXP, s)), nothing, "trn3"),
]


# ---- exponential


def chained(a: Any, top: Any) -> Any:
    """A running softmax: two pieces with the same maximum, and a sum that starts from a column."""
    tile, largest, result = load(a, nl.psum), load(top), empty(a.shape, dtypes.bfloat16)
    half = a.shape[1] // 2
    total, loaded = empty((a.shape[0], 1)), empty((a.shape[0], 1))
    exponential(result[:, 0:half], tile[:, 0:half], largest, reduce_cmd=reduce_cmd.reset_reduce)
    exponential(result[:, half:], tile[:, half:], largest, total, reduce_cmd.reduce)
    exponential(result, tile, largest, loaded, reduce_cmd.load_reduce, reduce_init=largest)
    return store(result), store(total), store(loaded)


def chained_expected(a: Any, top: Any) -> Any:
    values = np.exp(a.astype(np.float64) - top)
    total = values.sum(1, keepdims=True)
    return bf16(values), total, top + total


def plain_exponential(a: Any) -> Any:
    result = empty(a.shape)
    exponential(result, load(a), 2.0)
    return store(result)


EXPONENTIAL = [
    Legal("exponential", chained, arrays((64, 30), (64, 1)), chained_expected, targets=NEW, rtol=2**-7),
    Legal(
        "exponential",
        plain_exponential,
        arrays((4, 3, 2, 5), dtype=np.int16),
        lambda a: np.exp(a.astype(np.float64) - 2),
        targets=NEW,
        rtol=3e-7,
    ),
    Legal(
        "exponential",
        gather(exponential),
        gather_arrays,
        lambda a, i: np.exp(gathered(a, i).astype(np.float64)),
        targets=NEW,
        rtol=3e-7,
    ),
    breaks("exponential.shapes", lambda d, s, c: exponential(d[:, 0:4], s), "trn3"),
    breaks("exponential.column-partitions", lambda d, s, c: exponential(d, s, c[0:2]), "trn3"),
    breaks(
        "exponential.rank",
        lambda d, s, c: exponential(d.reshape((4, 2, 2, 2, 1)), s.reshape((4, 2, 2, 2, 1))),
        "trn3",
    ),
    breaks("exponential.reduce-cmd", lambda d, s, c: exponential(d, s, reduce_cmd=reduce_cmd.reset), "trn3"),
    breaks("exponential.reduce-init", lambda d, s, c: exponential(d, s, reduce_init=c), "trn3"),
    breaks(
        "exponential.reduce-res",
        lambda d, s, c: exponential(d, s, reduce_res=s, reduce_cmd=reduce_cmd.reset_reduce),
        "trn3",
    ),
    Breaks(
        "exponential.indirect",
        gather(lambda d, c: exponential(d, filled((16, 16)), c), 1),
        gather_arrays,
        "trn3",
    ),
    Breaks("exponential.indirect-partitions", misplaced(exponential), nothing, "trn3"),
]


# ---- reciprocal


def make_reciprocal(dtype: Any, buffer: Any = nl.sbuf) -> Any:
    def kernel(a: Any) -> Any:
        result = empty(a.shape, dtype, buffer)
        reciprocal(dst=result, data=load(a, buffer))
        return store(result)

    return kernel


RECIPROCAL = [
    Legal("reciprocal", make_reciprocal(np.float32), WIDE, lambda a: (1 / a.astype(np.float64)).astype(np.float32)),
    Legal(
        "reciprocal",
        make_reciprocal(np.float16, nl.psum),
        arrays((8, 3, 4)),
        lambda a: (np.float32(1) / a).astype(np.float16),
    ),
    breaks("reciprocal.shapes", lambda d, s, c: reciprocal(d[0:2], s)),
    Breaks("reciprocal.indirect", gather(reciprocal), gather_arrays, "trn3"),
]

EXAMPLES = [*ACTIVATION, *ACTIVATION_REDUCE, *ACTIVATE2, *EXPONENTIAL, *RECIPROCAL]
