"""Cases of activation functions, alone and with the accumulator registers."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import DType, float32
from nki.isa import alu, functions
from nki.spec.engine import reduce_cmd
from tests.isa.properties import values
from tests.isa.properties.drawing import FUNCTIONS, Chooser
from tests.isa.properties.references_functions import EXACT
from tests.isa.properties.strategies_reduce import commands

Calls = tuple[dict[str, Any], ...]
_COMMANDS = (reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce)
_REDUCING = (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce)


def _destination(c: Chooser, op: Any, rows: int, count: int, data: Any, reduces: bool) -> Any:
    """Approximate values that are reduced are written as float32."""
    dtype: DType | None = float32 if reduces and op.name not in EXACT else None
    return c.out("dst", rows, count, data, dtype=dtype)


def _bias(c: Chooser, op: Any, rows: int) -> Any:
    """None, zero, a number where the target has it, or a column; on NeuronCore-v2 nl.reciprocal has none."""
    if op == alu.RECIPROCAL and not c.target.has("reciprocal_bias"):
        return c.pick((None, 0.0))
    numbers = [None, 0.0, *([c.number()] if c.target.has("scalar_bias_immediate") else [])]
    return c.pick([*numbers, c.tile("bias", rows, 1)])


def _scaled(c: Chooser, op: Any, rows: int, count: int, reduces: bool) -> dict[str, Any]:
    data = c.tile("data", rows, count)
    call = {"dst": _destination(c, op, rows, count, data, reduces), "op": op, "data": data, "bias": _bias(c, op, rows)}
    scale = c.pick((1.0, 1.0, c.column("scale", rows, dtype=float32)))
    return {**call, "scale": scale}


def activation(c: Chooser) -> Calls:
    """Chains of commands."""
    rows, count = c.sizes(600)
    calls = []
    for command in commands(c, *_COMMANDS):
        op = c.pick(FUNCTIONS)
        call = {**_scaled(c, op, rows, count, command in _REDUCING), "reduce_cmd": command}
        if command in _REDUCING:
            call["reduce_op"] = alu.ADD
        if c.flag():
            call["reduce_res"] = c.tile("reduce_res", rows, 1)
        calls.append(call)
    return tuple(calls)


def activation_reduce(c: Chooser) -> Calls:
    """With a result of the reduction, always."""
    rows, count = c.sizes(600)
    call = _scaled(c, c.pick(FUNCTIONS), rows, count, True)
    return ({**call, "reduce_op": alu.ADD, "reduce_res": c.tile("reduce_res", rows, 1)},)


_STAGES = (
    (alu.MULTIPLY, alu.ADD),
    (alu.MULTIPLY, alu.SUBTRACT),
    (alu.MULTIPLY, alu.BYPASS),
    (alu.ADD, alu.BYPASS),
    (alu.SUBTRACT, alu.BYPASS),
    (alu.BYPASS, alu.BYPASS),
)


def activate2(c: Chooser) -> Calls:
    """All stages and reductions; of immediate tensors both have one dtype."""
    rows, count = c.sizes(600)
    reduce_op = c.pick((alu.ADD, alu.MAXIMUM, alu.MINIMUM, alu.ABS_MAX, alu.ABS_MIN))
    calls = []
    for command in commands(c, *_COMMANDS):
        op, (op0, op1), dtype = c.pick((*FUNCTIONS, *[functions.PRELU] * 3)), c.pick(_STAGES), c.dtype("imm0")
        data = c.tile("data", rows, count)
        call = {"dst": _destination(c, op, rows, count, data, command in _REDUCING), "op": op, "data": data}
        call |= {"imm0": c.column("imm0", rows, dtype=dtype), "imm1": c.column("imm1", rows, dtype=dtype)}
        call |= {"op0": op0, "op1": op1, "reduce_cmd": command}
        call |= {"reverse0": op0 != alu.BYPASS and c.flag(), "reverse1": op1 != alu.BYPASS and c.flag()}
        if op == functions.PRELU:
            call["relu_param"] = c.pick((0.25, -2.0, c.tile("relu_param", rows, 1, make=values.tame)))
        if command is not reduce_cmd.idle:
            call["reduce_op"] = reduce_op
        if c.flag():
            call["reduce_res"] = c.tile("reduce_res", rows, 1)
        calls.append(call)
    return tuple(calls)


def exponential(c: Chooser) -> Calls:
    """Chains; idle loses the registers."""
    rows, count = c.sizes(600)
    calls = []
    for command in commands(c, reduce_cmd.idle, *_REDUCING):
        src = c.tile("src", rows, count)
        dtype = float32 if command in _REDUCING else None
        call = {"dst": c.out("dst", rows, count, src, dtype=dtype), "src": src, "reduce_cmd": command}
        call["max_value"] = c.column("max_value", rows, dtype=float32)
        if command is reduce_cmd.load_reduce:
            call["reduce_init"] = c.column("reduce_init", rows, dtype=float32)
        if c.flag():
            call["reduce_res"] = c.tile("reduce_res", rows, 1)
        calls.append(call)
    return tuple(calls)
