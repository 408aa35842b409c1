"""Cases of reductions, running values, scans and statistics; chains of calls that share accumulator registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.dtypes import DType, float32, int8, int16, int32, uint8, uint16, uint32
from nki.isa import alu
from nki.spec.engine import reduce_cmd
from tests.isa.properties import values
from tests.isa.properties.drawing import BINARY, OPERATORS, UNARY, Chooser, available
from tests.isa.properties.references_alu import INEXACT

Calls = tuple[dict[str, Any], ...]
_SIZES: tuple[tuple[DType, ...], ...] = ((int8, uint8), (int16, uint16), (int32, uint32))
_REDUCING = [op for op in OPERATORS if op.reduces]
_ACROSS = [alu.ADD, alu.AVERAGE, alu.MAXIMUM, alu.BITWISE_OR, alu.BITWISE_AND]


def tensor_reduce(c: Chooser) -> Calls:
    """One to all free dimensions, counted from either end."""
    op = c.pick(_REDUCING)
    kinds = c.pick(_SIZES) if op.is_bitvec else None
    rows, count = c.sizes(900)
    data = c.tile("data", rows, count, c.pick(kinds) if kinds else None)
    dims = c.pick(range(1, len(data.shape)))
    axes = [len(data.shape) - n for n in range(dims, 0, -1)]
    negative = [axis - len(data.shape) for axis in axes]
    axis: Any = c.pick([axes, negative, list(reversed(axes))])
    axis = axis[0] if dims == 1 and c.flag() else tuple(axis)
    kept = int(np.prod(data.shape[1 : len(data.shape) - dims]))
    dst = c.tile("dst", rows, kept, c.pick(kinds) if kinds else None)
    negate = c.flag() and not op.is_bitvec
    return ({"dst": dst, "op": op, "data": data, "axis": axis, "negate": negate, "keepdims": c.flag()},)


def tensor_partition_reduce(c: Chooser) -> Calls:
    """All partitions of a tile."""
    op = c.pick(_ACROSS)
    kinds = c.pick(_SIZES) if op.is_bitvec else None
    rows, count = c.sizes(900)
    data = c.tile("data", rows, count, c.pick(kinds) if kinds else None)
    return ({"dst": c.tile("dst", 1, count, c.pick(kinds) if kinds else None), "op": op, "data": data},)


def commands(c: Chooser, *legal: reduce_cmd) -> list[reduce_cmd]:
    """One to three commands in sequence."""
    return [c.pick(legal) for _ in range(c.pick((1, 1, 2, 3)))]


def _first_operator(c: Chooser) -> Any:
    return c.pick(available([*BINARY, *UNARY], c.target))


def _operand(c: Chooser, op: Any, name: str, rows: int) -> Any:
    return 0.0 if op.arity == 1 else c.column(name, rows, dtype=float32)


def tensor_scalar_reduce(c: Chooser) -> Calls:
    """Chains with the same partitions; approximate operators write float32."""
    rows, count = c.sizes(500)
    reduce_op = c.pick((alu.ADD, alu.MULTIPLY, alu.MAXIMUM, alu.MINIMUM))
    calls = []
    for command in commands(c, reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce):
        op, data = _first_operator(c), c.tile("data", rows, count)
        dtype = float32 if op.name in INEXACT or op in (alu.MAXIMUM, alu.MINIMUM, alu.RELU) else None
        call = {"dst": c.out("dst", rows, count, data, dtype=dtype), "data": data, "op0": op}
        call |= {"operand0": _operand(c, op, "operand0", rows), "reduce_op": reduce_op, "reduce_cmd": command}
        call |= {"reverse0": False} if c.flag() else {}
        if command is reduce_cmd.load_reduce:
            call["reduce_init"] = c.column("reduce_init", rows, dtype=float32)
        if c.pick((True, True, False)):
            call |= {"reduce_res": c.tile("reduce_res", rows, 1), "reduce_res_negate": c.flag()}
        calls.append(call)
    return tuple(calls)


def tensor_scalar_cumulative(c: Chooser) -> Calls:
    """Chains; approximate operators write float32, so that every step can be followed."""
    rows, count = c.sizes(400)
    op1 = c.pick((alu.ADD, alu.SUBTRACT, alu.MULTIPLY, alu.MAXIMUM, alu.MINIMUM))
    calls = []
    for command in commands(c, reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce):
        op, src = _first_operator(c), c.tile("src", rows, count)
        dst = c.out("dst", rows, count, src, dtype=float32 if op.name in INEXACT else None)
        call = {"dst": dst, "src": src, "op0": op, "op1": op1, "imm0": _operand(c, op, "imm0", rows)}
        call["reduce_cmd"] = command
        if command is reduce_cmd.load_reduce:
            call["imm1"] = c.column("imm1", rows, dtype=float32)
        calls.append(call)
    return tuple(calls)


def tensor_tensor_scan(c: Chooser) -> Calls:
    """All pairs of operators; nl.power writes float32."""
    rows, count = c.sizes(400)
    operators = available(BINARY, c.target)
    op0, op1 = c.pick(operators), c.pick(operators)
    exact = not {op0.name, op1.name} & set(INEXACT)
    data0 = c.tile("data0", rows, count)
    data1 = c.tile("data1", rows, count, psum=False if data0.psum else None)
    dst = c.out("dst", rows, count, data0, dtype=None if exact else float32)
    call = {"dst": dst, "data0": data0, "data1": data1, "initial": c.column("initial", rows), "op0": op0, "op1": op1}
    return ({**call, "reverse0": c.flag(), "reverse1": c.flag()},)


def bn_stats(c: Chooser) -> Calls:
    """Odd and even numbers of elements."""
    rows, count = c.sizes()
    return ({"dst": c.tile("dst", rows, 6), "data": c.tile("data", rows, count)},)


def bn_aggr(c: Chooser) -> Calls:
    """Statistics of one to ten pieces, and any other numbers."""
    rows, pieces = c.sizes(400, widths=(1, 2, 3, 4, 7, 10))
    data = c.tile("data", rows, 3 * pieces)
    if c.flag() and data.dtype.kind != "bool":
        contents = np.array(data.storage)
        contents[:, ::3] = values.whole(0, 64)(c.rng(), (rows, pieces), data.dtype)
        data = c.filled(data, contents)
    return ({"dst": c.tile("dst", rows, 2), "data": data},)
