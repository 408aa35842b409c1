"""References of reductions, running values, scans and statistics: plain loops, one float32 rounding for each step.

Sums and products have a documented order (`nki.spec.arrays`): element i goes to lane i % 16, lanes add in ascending i,
then meet in a tree of 8, 4, 2, 1; tensor_reduce adds from 0.0 on in ascending i. They are compared for equality in that
order; the signs of zeros that are sums are open. Where what is reduced is itself approximate (nl.power, nl.rsqrt,
activation functions), dst is float32 and holds the very values, so the reduction of what was written must be equal too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.spec.engine import reduce_cmd
from tests.isa.properties.cases import State
from tests.isa.properties.compare import Bits, Expected, Near, exactly
from tests.isa.properties.formats import F64, f32
from tests.isa.properties.references_alu import INEXACT, alu, on_bits
from tests.isa.properties.references_elementwise import spread, value

Results = dict[str, Expected]
_LANES = 16
_START = {
    "add": 0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "abs_max": 0.0,
    "abs_min": np.inf,
}


@np.errstate(all="ignore")
def _step(name: str, a: F64, b: F64) -> F64:
    match name:
        case "add":
            return f32(a + b)
        case "subtract":
            return f32(a - b)
        case "multiply":
            return f32(a * b)
    return alu(name, a, b)[0]


def reduced(name: str, rows: F64) -> F64:
    """``(N, 1)`` of ``(N, F)`` in the documented order."""
    count = rows.shape[1]
    if name == "subtract":
        rest = reduced("add", rows[:, 1:]) if count > 1 else np.zeros((len(rows), 1))
        return _step("subtract", rows[:, :1], rest)
    if name.startswith("logical"):
        return _logical(name, rows)
    if name in ("abs_max", "abs_min"):
        return _by_magnitude(name, rows)
    lanes = [np.full(len(rows), _START[name]) for _ in range(_LANES)]
    for i in range(count):
        lanes[i % _LANES] = rows[:, i] if i < _LANES else _step(name, lanes[i % _LANES][None], rows[:, i][None])[0]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [_step(name, p[None], q[None])[0] for p, q in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0][:, None]


def in_order(rows: F64) -> F64:
    """``(N, 1)``: the sums of ``(N, F)``, one element after the other."""
    total = np.zeros(len(rows))
    for i in range(rows.shape[1]):
        total = _step("add", total[None], rows[:, i][None])[0]
    return total[:, None]


def _logical(name: str, rows: F64) -> F64:
    counts = [sum(number != 0 for number in row) for row in rows.tolist()]
    width = rows.shape[1]
    truth = {
        "logical_and": [n == width for n in counts],
        "logical_or": [n > 0 for n in counts],
        "logical_xor": [n % 2 == 1 for n in counts],
    }
    return np.array([[float(t)] for t in truth[name]])


def _by_magnitude(name: str, rows: F64) -> F64:
    """The element of largest or smallest magnitude, of two of them the positive one; NaN if there is one."""
    results = []
    for row in rows.tolist():
        if any(n != n for n in row):
            results.append([np.nan])
            continue
        best = (max if name == "abs_max" else min)(abs(n) for n in row)
        results.append([best if best in row else -best])
    return np.array(results)


def _unsigned(values: F64) -> Near:
    return exactly(values, signed=False)


def tensor_reduce(a: Any, state: State) -> Results:
    """Groups of neighbours; bits, or float32 with a sign at the end."""
    kept = a.dst.count
    if a.op.is_bitvec:
        groups = a.data.bits.reshape(a.data.partitions * kept, -1).tolist()
        results = [_folded(a.op.name, group, a.data.dtype.bits) for group in groups]
        return {"dst": Bits(np.array(results, a.data.bits.dtype).reshape(a.data.partitions, kept))}
    rows = a.data.f32.reshape(a.data.partitions * kept, -1)
    result = (in_order(rows) if a.op.name == "add" else reduced(a.op.name, rows)).reshape(-1, kept)
    if a.op.name in ("add", "subtract", "multiply") and {a.data.dtype.name, a.dst.dtype.name} <= {"int32", "uint32"}:
        (state.warned if (np.abs(result) > 2**24).any() else state.may_warn).add("lint.integer-precision")
    return {"dst": _unsigned(-result if a.negate else result)}


def _folded(name: str, numbers: list[int], width: int) -> int:
    result = numbers[0]
    for number in numbers[1:]:
        result = on_bits(name, result, number, width)
    return result


@np.errstate(all="ignore")
def tensor_partition_reduce(a: Any, state: State) -> Results:
    """The same over partitions; the average divides the rounded sum."""
    if a.op.is_bitvec:
        return {
            "dst": Bits(
                np.array(
                    [[_folded(a.op.name, c, a.data.dtype.bits) for c in a.data.bits.T.tolist()]], a.data.bits.dtype
                )
            )
        }
    name = "add" if a.op.name == "average" else a.op.name
    result = reduced(name, a.data.f32.T).T
    return {"dst": _unsigned(result / a.data.partitions if a.op.name == "average" else result)}


# ---- accumulator registers


def obey(state: State, command: reduce_cmd, name: str, values: F64, initial: Any, keeps: bool = False) -> None:
    """What a command does to the registers; `keeps`: idle leaves them as they are, as on Scalar."""
    rows = len(values)
    match command:
        case reduce_cmd.idle:
            state.registers = state.registers if keeps else None
            return
        case reduce_cmd.reset:
            state.registers = np.full((rows, 1), _START[name])
            return
    result = reduced(name, values)
    if command is reduce_cmd.reduce:
        result = _step(name, held(state, rows), result)
    elif command is reduce_cmd.load_reduce:
        result = _step(name, np.broadcast_to(value(initial), (rows, 1)), result)
    state.registers = result


def held(state: State, rows: int) -> F64:
    """The registers; undefined ones hold NaN and are reported."""
    if state.registers is None:
        state.warned.add("accumulator.undefined")
        return np.full((rows, 1), np.nan)
    return state.registers


def with_registers(a: Any, state: State, results: Results, rows: int, negate: bool = False) -> Results:
    """The results, and the registers in `reduce_res` if the call has it."""
    if a.reduce_res is None:
        return results
    registers = held(state, rows)
    return {**results, "reduce_res": _unsigned(-registers if negate else registers)}


def tensor_scalar_reduce(a: Any, state: State) -> Results:
    """The result of op0, and its reduction before it rounds."""
    first = alu(a.op0.name, a.data.f32, value(a.operand0))
    values = state.got["dst"] if a.op0.name in INEXACT else first[0]
    obey(
        state,
        a.reduce_cmd or reduce_cmd.reset_reduce,
        a.reduce_op.name,
        np.broadcast_to(values, a.data.f32.shape),
        a.reduce_init,
    )
    return with_registers(a, state, {"dst": spread(first, a.dst)}, a.data.partitions, bool(a.reduce_res_negate))


# ---- running values


def _following(start: F64, written: F64) -> F64:
    """The state before each element, as the instruction itself wrote it to a float32 destination."""
    return np.concatenate([start, written[:, :-1]], axis=1)


def tensor_scalar_cumulative(a: Any, state: State) -> Results:
    """Left to right; the last value stays in the registers."""
    rows, name = a.src.partitions, a.op1.name
    values = alu(a.op0.name, a.src.f32, value(a.imm0))
    start = np.full((rows, 1), _START[name])
    if a.reduce_cmd is reduce_cmd.reduce:
        start = held(state, rows)
    elif a.reduce_cmd is reduce_cmd.load_reduce:
        start = np.broadcast_to(value(a.imm1), (rows, 1))
    if a.op0.name in INEXACT:
        expected = alu(name, values, _following(start, state.got["dst"]))
        state.registers = state.got["dst"][:, -1:]
        return {"dst": Near(expected, signed=False)}
    running, last = [], start[:, 0]
    for i in range(a.src.count):
        last = _step(name, values[0, :, i][None], last[None])[0]
        running.append(last)
    state.registers = last[:, None]
    return {"dst": _unsigned(np.stack(running, axis=1))}


def tensor_tensor_scan(a: Any, state: State) -> Results:
    """Left to right in float32; with nl.power, every step from what the step before wrote."""
    reverse0, reverse1 = bool(a.reverse0), bool(a.reverse1)
    start = np.broadcast_to(value(a.initial), (a.data0.partitions, 1))
    if {a.op0.name, a.op1.name} & set(INEXACT):
        before = _following(start, state.got["dst"])
        first = alu(a.op0.name, a.data0.f32, before, reverse0)
        return {"dst": Near(alu(a.op1.name, first, a.data1.f32, reverse1), signed=False)}
    states, last = [], start[:, 0]
    for i in range(a.data0.count):
        inner = alu(a.op0.name, a.data0.f32[:, i][None], last[None], reverse0)[:1]
        last = alu(a.op1.name, inner, a.data1.f32[:, i][None], reverse1)[0, 0]
        states.append(last)
    return {"dst": _unsigned(np.stack(states, axis=1))}


# ---- statistics


@np.errstate(all="ignore")
def _moments(rows: F64) -> tuple[F64, F64, F64]:
    count = float(rows.shape[1])
    if not count:
        return (np.zeros((len(rows), 1)),) * 3
    mean = f32(reduced("add", rows) / count)
    away = f32(rows - mean)
    return np.full((len(rows), 1), count), mean, reduced("add", f32(away * away))


def bn_stats(a: Any, state: State) -> Results:
    """Even, then odd elements."""
    values = a.data.f32
    return {"dst": _unsigned(np.concatenate([*_moments(values[:, ::2]), *_moments(values[:, 1::2])], axis=1))}


@np.errstate(all="ignore")
def bn_aggr(a: Any, state: State) -> Results:
    """Pieces weighted by their counts."""
    counts, means, spreads = (a.data.f32[:, i::3] for i in range(3))
    total = reduced("add", counts)
    mean = f32(reduced("add", f32(counts * means)) / total)
    away = f32(means - mean)
    within = f32(counts * f32(away * away))
    variance = f32(reduced("add", f32(spreads + within)) / total)
    return {"dst": _unsigned(np.concatenate([mean, variance], axis=1))}
