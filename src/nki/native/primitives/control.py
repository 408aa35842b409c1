"""Records that steer: registers of the sequencers, dynamic addresses, and the ends of device loops.

Registers are words of the context, numbered like base addresses, so that each thread has its own; all threads compute
the same. A function returns 0 to go on, 1 to leave its record to Python, and 2 to go on at word 3 of its record.
"""

from __future__ import annotations

from nki.native.operand_layout import BASES, HEADER
from nki.native.primitives.abi import RECORD_ARGUMENTS
from nki.native.primitives.writer import POINTER, FunctionBuilder

UNDEFINED = 1 << 62
"""What a register holds before anything was moved into it."""

TARGET = 3
"""The word of a record that says where to go on."""

OPERATIONS = (
    "add",
    "subtract",
    "multiply",
    "floor_divide",
    "remainder",
    "left_shift",
    "right_shift",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "minimum",
    "maximum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
)
"""By number; `nki.isa.register.register_op` says what they mean."""

_SIMPLE = {
    "add": "addi",
    "subtract": "subi",
    "multiply": "muli",
    "bitwise_and": "andi",
    "bitwise_or": "ori",
    "bitwise_xor": "xori",
    "minimum": "minsi",
    "maximum": "maxsi",
}
_RELATIONS = {"equal": "eq", "not_equal": "ne", "less": "slt", "less_equal": "sle", "greater": "sgt"}
_RELATIONS["greater_equal"] = "sge"
_SIZES = (1, 2, 4)
_MOST_SHIFT = 32

ALU, OFFSET, FOR_START, FOR_NEXT, WHILE_START, WHILE_NEXT = (
    "register_alu",
    "offset",
    "for_start",
    "for_next",
    "while_start",
    "while_next",
)
LOADS = {size: f"register_load_{size}" for size in _SIZES}
STORES = {size: f"register_store_{size}" for size in _SIZES}
CONTROL = (ALU, OFFSET, FOR_START, FOR_NEXT, WHILE_START, WHILE_NEXT, *LOADS.values(), *STORES.values())
"""All functions of this file."""


def control_text() -> str:
    """MLIR of all functions."""
    parts = [_alu_text(), _offset_text(), _for_start_text(), _for_next_text(), _while_start_text(), _while_next_text()]
    for size in _SIZES:
        parts += [_load_text(size), _store_text(size)]
    return "".join(parts)


def _alu_text() -> str:
    """Register word 0 = (1, 2) <operation 5> (3, 4), of 32 bits."""
    w = FunctionBuilder()
    a, b, operation = _operand(w, 1), _operand(w, 3), _word(w, 5)
    quotient, remainder = _floor(w, a, w.select(w.is_("eq", b, 0), 1, b))
    shift = w.op("minsi", w.op("maxsi", b, w.constant(0)), w.constant(_MOST_SHIFT))
    results = {
        "floor_divide": quotient,
        "remainder": remainder,
        "left_shift": w.op("shli", a, shift),
        "right_shift": w.op("shrsi", a, shift),
    }
    results |= {name: w.op(op, a, b) for name, op in _SIMPLE.items()}
    results |= {name: _as_number(w, w.is_(relation, a, b)) for name, relation in _RELATIONS.items()}
    result = w.constant(0)
    for number, name in enumerate(OPERATIONS):
        result = w.select(w.is_("eq", operation, number), results[name], result)
    divides = w.either(*[w.is_("eq", operation, OPERATIONS.index(name)) for name in ("floor_divide", "remainder")])
    shifts = w.either(*[w.is_("eq", operation, OPERATIONS.index(name)) for name in ("left_shift", "right_shift")])
    wrong = w.either(w.both(divides, w.is_("eq", b, 0)), w.both(shifts, w.is_("slt", b, 0)))
    bad = w.either(wrong, w.either(_undefined(w, a), _undefined(w, b)))
    _when_not(w, bad, [(0, _wrapped(w, result))])
    return _function(w, ALU, w.select(bad, 1, 0))


def _floor(w: FunctionBuilder, a: str, b: str) -> tuple[str, str]:
    """Quotient and remainder that round down, as Python's."""
    quotient, rest = w.op("divsi", a, b), w.op("remsi", a, b)
    apart = w.is_("slt", w.op("xori", rest, b), 0)
    down = w.both(w.is_("ne", rest, 0), apart)
    return w.sub(quotient, _as_number(w, down)), w.select(down, w.add(rest, b), rest)


def _offset_text() -> str:
    """Base 2 = base 1 + register 0 * bytes 6, if register 0 * scale 3 is from 4 to 5."""
    w = FunctionBuilder()
    value = w.word("%ctx", w.add(_word(w, 0), BASES))
    reached = w.mul(value, _word(w, 3))
    inside = w.both(w.is_("sge", reached, _word(w, 4)), w.is_("sle", reached, _word(w, 5)))
    bad = w.either(_undefined(w, value), _not(w, inside))
    base = w.word("%ctx", w.add(_word(w, 1), BASES))
    _when_not(w, bad, [(2, w.add(base, w.mul(value, _word(w, 6))))])
    return _function(w, OFFSET, w.select(bad, 1, 0))


def _load_text(size: int) -> str:
    """Register 2 = the integer at base 0 + offset 1, with its sign if word 3 says so."""
    w = FunctionBuilder()
    found = w.load(f"i{8 * size}", _memory(w))
    positive, signed = (w.value(f"arith.{op} {found} : i{8 * size} to i64") for op in ("extui", "extsi"))
    _set(w, 2, w.select(w.is_("ne", _word(w, 3), 0), signed, positive))
    return _function(w, LOADS[size], w.constant(0))


def _store_text(size: int) -> str:
    """The integer at base 0 + offset 1 = the low bits of register 2; one thread does it."""
    w = FunctionBuilder()
    value = w.word("%ctx", w.add(_word(w, 2), BASES))
    bad = _undefined(w, value)
    low = w.value(f"arith.trunci {value} : i64 to i{8 * size}")
    place = _memory(w)
    good = _not(w, bad)
    with w.when(w.both(good, w.is_("slt", "%first", "%last"))):
        w.store(low, f"i{8 * size}", place)
    return _function(w, STORES[size], w.select(bad, 1, 0))


def _for_start_text() -> str:
    """Counter 0 and index 1 = (3, 4), limit 2 = (5, 6); go to the target if there is no trip."""
    w = FunctionBuilder()
    lower, upper = _operand(w, 3), _operand(w, 5)
    bad = w.either(_undefined(w, lower), _undefined(w, upper))
    runs = w.both(w.is_("slt", lower, upper), _not(w, bad))
    with w.when(runs):
        for at, value in ((0, lower), (1, _wrapped(w, lower)), (2, upper)):
            _set(w, at, value)
    return _function(w, FOR_START, w.select(bad, 1, w.select(runs, 0, 2)))


def _for_next_text() -> str:
    """Counter 0 += step 3; if it is below limit 2: index 1 = counter, and go to the target. Fuel is 4."""
    w = FunctionBuilder()
    following = w.add(w.word("%ctx", w.add(_word(w, 0), BASES)), _word(w, 3))
    limit = w.word("%ctx", w.add(_word(w, 2), BASES))
    runs = w.is_("slt", following, limit)
    return _next(w, FOR_NEXT, 4, runs, [(0, following), (1, _wrapped(w, following))])


def _while_start_text() -> str:
    """Trips 0 = 0; go to the target if condition 1 is 0."""
    w = FunctionBuilder()
    condition = w.word("%ctx", w.add(_word(w, 1), BASES))
    _set(w, 0, w.constant(0))
    ends = w.select(w.is_("eq", condition, 0), 2, 0)
    return _function(w, WHILE_START, w.select(_undefined(w, condition), 1, ends))


def _while_next_text() -> str:
    """Trips 0 += 1; go to the target if condition 1 is not 0. More than 2 trips are Python's business; fuel is 3."""
    w = FunctionBuilder()
    trips = w.add(w.word("%ctx", w.add(_word(w, 0), BASES)), 1)
    condition = w.word("%ctx", w.add(_word(w, 1), BASES))
    return _next(w, WHILE_NEXT, 3, w.is_("ne", condition, 0), [(0, trips)], w.is_("sgt", trips, _word(w, 2)))


def _next(
    w: FunctionBuilder, name: str, fuel_at: int, runs: str, changes: list[tuple[int, str]], wrong: str = ""
) -> str:
    """The end of a trip; without fuel, Python is asked whether to go on."""
    fuel = w.word("%ctx", w.add(_word(w, fuel_at), BASES))
    bad = w.is_("eq", fuel, 0)
    bad = w.either(bad, wrong) if wrong else bad
    again = w.both(runs, _not(w, bad))
    with w.when(again):
        for at, value in [*changes, (fuel_at, w.sub(fuel, 1))]:
            _set(w, at, value)
    return _function(w, name, w.select(bad, 1, w.select(runs, 2, 0)))


def _word(w: FunctionBuilder, number: int) -> str:
    return w.word("%words", HEADER + number)


def _operand(w: FunctionBuilder, number: int) -> str:
    """A register or a number: word `number` tells which, the next one is it."""
    register, given = w.is_("ne", _word(w, number), 0), _word(w, number + 1)
    held = w.word("%ctx", w.add(w.select(register, given, 0), BASES))
    return w.select(register, held, given)


def _memory(w: FunctionBuilder) -> str:
    return w.at(w.word("%ctx", w.add(_word(w, 0), BASES), POINTER), _word(w, 1))


def _set(w: FunctionBuilder, number: int, value: str) -> None:
    """Write to the register that a word of the record names."""
    w.store(value, "i64", w.at("%ctx", w.mul(w.add(_word(w, number), BASES), 8)), 8)


def _when_not(w: FunctionBuilder, bad: str, changes: list[tuple[int, str]]) -> None:
    with w.when(_not(w, bad)):
        for at, value in changes:
            _set(w, at, value)


def _undefined(w: FunctionBuilder, value: str) -> str:
    return w.is_("eq", value, UNDEFINED)


def _not(w: FunctionBuilder, truth: str) -> str:
    return w.op("xori", truth, w.constant(1, "i1"), "i1")


def _wrapped(w: FunctionBuilder, value: str) -> str:
    """A number as a register of 32 bits holds it, with its sign."""
    return w.value(f"arith.extsi {w.value(f'arith.trunci {value} : i64 to i32')} : i32 to i64")


def _as_number(w: FunctionBuilder, truth: str) -> str:
    return w.value(f"arith.extui {truth} : i1 to i64")


def _function(w: FunctionBuilder, name: str, status: str) -> str:
    w.done(w.value(f"arith.trunci {status} : i64 to i32"), "i32")
    return w.function(name, RECORD_ARGUMENTS, "i32")
