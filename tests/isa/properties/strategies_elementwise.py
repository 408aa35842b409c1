"""Cases of instructions that work element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.dtypes import DType, float32, int8, int16, int32, uint8, uint16, uint32
from nki.isa import alu
from nki.spec.engine import engine
from tests.isa.properties import values
from tests.isa.properties.drawing import BINARY, BITVEC, UNARY, Chooser, allowed, available
from tests.isa.properties.places import Tile

Calls = tuple[dict[str, Any], ...]
_SIZES: tuple[tuple[DType, ...], ...] = ((int8, uint8), (int16, uint16), (int32, uint32))


def tensor_tensor(c: Chooser) -> Calls:
    """Bitvec operators on one size of integers, 32-bit integers, or any dtypes."""
    rows, count = c.sizes(700)
    op = c.pick([*available(BINARY, c.target), *BITVEC])
    kinds: list[DType | None] = [None, None, None]
    if op.is_bitvec:
        size = c.pick(_SIZES)
        kinds = [c.pick(size) for _ in kinds]
    elif c.pick((False, False, True)):
        kinds = [c.pick((int32, uint32)) for _ in kinds]
    asked = c.pick((engine.unknown, engine.unknown, engine.vector, engine.gpsimd))
    if op.is_bitvec or op in (alu.POWER, alu.ABS_MAX, alu.ABS_MIN):
        asked = engine.unknown
    on_chip = False if op == alu.POWER or asked is engine.gpsimd else None
    second = values.shifts if op.name.endswith("shift") else None
    data1 = c.tile("data1", rows, count, kinds[1], psum=on_chip)
    data2 = c.tile("data2", rows, count, kinds[2], second, psum=False if data1.psum else on_chip)
    call = {"dst": c.out("dst", rows, count, data1, dtype=kinds[0], psum=on_chip), "data1": data1, "data2": data2}
    return ({**call, "op": op, "engine": asked},)


def _operand(c: Chooser, op: Any, name: str, rows: int, bits: tuple[DType, ...] | None, psum: bool | None) -> Any:
    """The second operand of an operator."""
    if op.arity == 1:
        return c.pick((None, 0.0))
    if bits is None:
        return c.column(name, rows, dtype=float32, psum=psum)
    if c.flag():
        return c.tile(name, rows, 1, c.pick(bits), values.shifts if op.name.endswith("shift") else None)
    width = bits[0].bits
    low = c.pick((0, 1, 2, width - 1, width, (1 << (width - 1)) - 1))
    return low if op.name.endswith("shift") else c.pick((low, -1, -(1 << (width - 1)), (1 << width) - 1))


def tensor_scalar(c: Chooser) -> Calls:
    """One operator or two of the same class, numbers or columns, in either order; or a step that is left out."""
    rows, count = c.sizes(700)
    bits = c.pick(_SIZES) if c.pick((False, False, True)) else None
    operators = [*BITVEC, alu.INVERT] if bits else available([*BINARY, *UNARY], c.target)
    second = c.pick([None, *operators])
    first = None if bits is None and c.pick((False,) * 9 + (True,)) else c.pick(operators)
    # nl.rsqrt goes to GpSimd unless an operand is in PSUM; what it is asked to run on decides too
    asked = {"engine": engine.vector} if bits is None and c.flag() else {}
    data = c.tile("data", rows, count, c.pick(bits) if bits else None)
    call: dict[str, Any] = {"dst": c.out("dst", rows, count, data, dtype=c.pick(bits) if bits else None), "data": data}
    for number, op in enumerate((first, second)):
        operand = None if op is None else _operand(c, op, f"operand{number}", rows, bits, None)
        call |= {f"op{number}": op, f"operand{number}": operand, f"reverse{number}": op is not None and c.flag()}
    return ({**call, **asked, **_on_scalar(c, call, bits)},)


def _on_scalar(c: Chooser, call: dict[str, Any], bits: Any) -> dict[str, Any]:
    """The Scalar engine runs every arithmetic operator where the target says so, elsewhere multiply and add."""
    if bits or not c.pick((False, False, False, True)):
        return {}
    pair = tuple(call[name] for name in ("op0", "op1") if call[name] is not None)
    known = pair in ((alu.MULTIPLY, alu.ADD), (alu.MULTIPLY,), (alu.ADD,))
    return {"engine": engine.scalar} if known or c.target.has("scalar_tensor_scalar_any_op") else {}


def scalar_tensor_tensor(c: Chooser) -> Calls:
    """Two operators with two operands each."""
    rows, count = c.sizes(500)
    operators = available(BINARY, c.target)
    data = c.tile("data", rows, count)
    call: dict[str, Any] = {"dst": c.out("dst", rows, count, data), "data": data}
    call |= {"op0": c.pick(operators), "operand0": c.column("operand0", rows), "op1": c.pick(operators)}
    call["operand1"] = c.tile("operand1", rows, count, psum=False if data.psum else None)
    return ({**call, "reverse0": c.flag(), "reverse1": c.flag()},)


def reciprocal(c: Chooser) -> Calls:
    """One input."""
    rows, count = c.sizes()
    data = c.tile("data", rows, count)
    return ({"dst": c.out("dst", rows, count, data), "data": data},)


# ---- copies


def tensor_copy(c: Chooser) -> Calls:
    """All pairs of dtypes, on every engine that the target has for it; x4 types only to themselves."""
    rows, count = c.sizes()
    engines = [engine.unknown, engine.vector, engine.gpsimd]
    asked = c.pick([*engines, engine.scalar] if c.target.has("scalar_tensor_copy") else engines)
    psum = False if asked is engine.gpsimd else None
    src = c.tile("src", rows, count, psum=psum)
    casts = [dtype for dtype in allowed(c.instruction, "dst") if not dtype.is_packed]
    dtype = src.dtype if src.dtype.is_packed or c.flag() else c.pick(casts)
    return ({"dst": c.out("dst", rows, count, src, dtype=dtype, psum=psum), "src": src, "engine": asked},)


def memset(c: Chooser) -> Calls:
    """Numbers of the kind of the dtype, up to both ends of its range."""
    rows, count = c.sizes()
    dst = c.tile("dst", rows, count)
    number: Any = c.number()
    if dst.dtype.is_packed:
        number = 0
    elif dst.dtype.is_integer:
        number = int(c.pick([0, 1, int(dst.dtype.min), int(dst.dtype.max), 100]))
    return ({"dst": dst, "value": number, "engine": c.pick((engine.unknown, engine.vector))},)


def tensor_copy_predicated(c: Chooser) -> Calls:
    """A tile of the dtype of dst, or a number."""
    rows, count = c.sizes()
    dst = c.tile("dst", rows, count)
    src: Any = c.number() if c.flag() else c.tile("src", rows, count, dst.dtype)
    if not isinstance(src, Tile) and dst.dtype.is_packed:
        src = 0
    if isinstance(src, float) and np.isnan(src):
        src = 1.0  # a NaN has many encodings, and this comparison is by bits
    psum = False if isinstance(src, Tile) and src.psum else None
    predicate = c.tile("predicate", rows, count, make=values.sparse, psum=psum)
    return ({"dst": dst, "src": src, "predicate": predicate, "reverse_pred": c.flag()},)
