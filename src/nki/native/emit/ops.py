"""Operations of expression nodes as MLIR, for vectors and for single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nki.native import cpu_features
from nki.native.emit.casts import decode, encode
from nki.native.emit.code import LANES, Code, type_of
from nki.native.trace.expression import F32, F64, I64, Node

_FLOAT = {"add": "addf", "subtract": "subf", "multiply": "mulf", "divide": "divf"}
_INTEGER = {"iadd": "addi", "isubtract": "subi", "imultiply": "muli", "and": "andi", "or": "ori", "xor": "xori"}
_UNARY = {
    "absolute": "math.absf",
    "negative": "arith.negf",
    "sqrt": "math.sqrt",
    "floor": "math.floor",
}
_RELATION = {
    "equal": "oeq",
    "not_equal": "une",
    "greater": "ogt",
    "greater_equal": "oge",
    "less": "olt",
    "less_equal": "ole",
}
_CASTS = {
    "from_signed": "arith.sitofp",
    "widen": "arith.extf",
    "narrow": "arith.truncf",
    "extend_signed": "arith.extsi",
    "extend_unsigned": "arith.extui",
    "truncate": "arith.trunci",
}
_SHIFTS = {"shift_left": "shli", "shift_right_signed": "shrsi"}
_BITS = {"i8": 8, "i16": 16, "i32": 32}

_SCALE = "llvm.x86.avx512.mask.scalef.ps.512"
_ALL, _CURRENT_ROUNDING = 0xFFFF, 4
_BOUND = 0x4396_0000
"""300.0: beyond that power of two everything is infinite or 0."""
_WHOLE = 0x4338_0000_0000_03FF
"""1.5 * 2**52 + 1023: plus a whole number it has the exponent field of that power of two in its last bits."""


def operation(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    """Compute a node from the names of its arguments; the name of the result."""
    op, kind = node.op, node.type
    if op in _FLOAT:
        return code.binary(f"arith.{_FLOAT[op]}", arguments[0], arguments[1], kind, width)
    if op in _INTEGER:
        return code.binary(f"arith.{_INTEGER[op]}", arguments[0], arguments[1], kind, width)
    if op in _UNARY:
        return code.let(f"{_UNARY[op]} {arguments[0]} : {type_of(kind, width)}")
    if op in _CASTS:
        return code.cast(_CASTS[op], arguments[0], node.arguments[0].type, kind, width)
    if op in _SHIFTS:
        count = code.constant(node.whole, kind, width)
        return code.binary(f"arith.{_SHIFTS[op]}", arguments[0], count, kind, width)
    return _OTHERS[op](code, node, arguments, width)


def combined(code: Code, operator: str, a: str, b: str, kind: str, width: int, never_nan: bool = False) -> str:
    """``a <operator> b`` as a reduction does it."""
    if operator in ("maximum", "minimum"):
        return _extreme(code, operator, a, b, width, never_nan)
    if operator in _FLOAT:
        return code.binary(f"arith.{_FLOAT[operator]}", a, b, F32, width)
    name = operator.rpartition("_")[2]
    return code.binary(f"arith.{_INTEGER[name]}", a, b, kind, width)


def _extreme(code: Code, operator: str, a: str, b: str, width: int, never_nan: bool) -> str:
    """NaN if either is, the first one if both are; of two zeros the second one."""
    mask = code.compare("ogt" if operator == "maximum" else "olt", a, b, F32, width)
    chosen = code.select(mask, a, b, F32, width)
    return chosen if never_nan else code.select(code.compare("uno", a, a, F32, width), a, chosen, F32, width)


def _extreme_node(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    first = node.arguments[0]
    number = first.op == "constant" and first.whole & 0x7FFF_FFFF <= 0x7F80_0000
    return _extreme(code, node.op, arguments[0], arguments[1], width, number)


def _multiply_add(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    a, b, c = arguments
    return code.let(f"math.fma {a}, {b}, {c} : {type_of(F32, width)}")


def _scaled(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    """An instruction of AVX-512; elsewhere in float64, which holds all products that are neither 0 nor infinite."""
    if not cpu_features.has("avx512f"):
        return _scaled_in_float64(code, arguments[0], arguments[1], width)
    typed = type_of(F32, LANES)
    a, n = arguments if width == LANES else [code.splat(argument, F32, LANES) for argument in arguments]
    mask, rounding = code.constant(_ALL, "i16", 0), code.constant(_CURRENT_ROUNDING, "i32", 0)
    types = f"({typed}, {typed}, {typed}, i16, i32) -> {typed}"
    result = code.let(f'llvm.call_intrinsic "{_SCALE}"({a}, {n}, {a}, {mask}, {rounding}) : {types}')
    return result if width == LANES else code.let(f"vector.extract {result}[0] : f32 from {typed}")


def _scaled_in_float64(code: Code, a: str, n: str, width: int) -> str:
    for bits, predicate in ((_BOUND, "olt"), (_BOUND | 1 << 31, "ogt")):
        bound = code.constant(bits, F32, width)
        n = code.select(code.compare(predicate, n, bound, F32, width), n, bound, F32, width)
    n = code.cast("arith.extf", n, F32, F64, width)
    field = code.binary("arith.addf", n, code.constant(_WHOLE, F64, width), F64, width)
    field = code.cast("arith.bitcast", field, F64, I64, width)
    power = code.binary("arith.shli", field, code.constant(52, I64, width), I64, width)
    power = code.cast("arith.bitcast", power, I64, F64, width)
    product = code.binary("arith.mulf", code.cast("arith.extf", a, F32, F64, width), power, F64, width)
    return code.cast("arith.truncf", product, F64, F32, width)


def _bitcast(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    source = node.arguments[0].type
    return arguments[0] if source == node.type else code.cast("arith.bitcast", arguments[0], source, node.type, width)


def _compare(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    predicate = _RELATION[str(node.attribute)]
    return code.compare(predicate, arguments[0], arguments[1], node.arguments[0].type, width)


def _compare_integers(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    return code.compare(str(node.attribute), arguments[0], arguments[1], node.arguments[0].type, width)


def _select(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    return code.select(arguments[0], arguments[1], arguments[2], node.type, width)


def _truth(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    one, zero = code.constant(0x3F80_0000, F32, width), code.constant(0, F32, width)
    return code.select(arguments[0], one, zero, F32, width)


def _invert(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    return code.binary("arith.xori", arguments[0], code.constant(-1, node.type, width), node.type, width)


def _shift(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    """A count of the width or more, or a negative one, leaves 0."""
    kind = node.type
    inside = code.compare("ult", arguments[1], code.constant(_BITS[kind], kind, width), kind, width)
    zero = code.constant(0, kind, width)
    count = code.select(inside, arguments[1], zero, kind, width)
    op = "arith.shli" if node.attribute == "left_shift" else "arith.shrui"
    return code.select(inside, code.binary(op, arguments[0], count, kind, width), zero, kind, width)


def _quotient(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    """Divide positions below 2**24 by a length, rounding down: the float32 quotient is at most one too large."""
    position, length = arguments
    floats = [code.cast("arith.sitofp", a, "i32", F32, width) for a in arguments]
    ratio = code.binary("arith.divf", floats[0], floats[1], F32, width)
    guess = code.cast("arith.fptosi", ratio, F32, "i32", width)
    rest = code.binary("arith.subi", position, code.binary("arith.muli", guess, length, "i32", width), "i32", width)
    over = code.compare("slt", rest, code.constant(0, "i32", width), "i32", width)
    less = code.binary("arith.subi", guess, code.constant(1, "i32", width), "i32", width)
    return code.select(over, less, guess, "i32", width)


def _decode(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    return decode(code, str(node.attribute), arguments[0], width)


def _encode(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    return encode(code, str(node.attribute), arguments[0], width)


def _constant(code: Code, node: Node, arguments: Sequence[str], width: int) -> str:
    return code.constant(node.whole, node.type, width)


_OTHERS: dict[str, Callable[[Code, Node, Sequence[str], int], str]] = {
    "maximum": _extreme_node,
    "minimum": _extreme_node,
    "multiply_add": _multiply_add,
    "scaled": _scaled,
    "bitcast": _bitcast,
    "compare": _compare,
    "icompare": _compare_integers,
    "select": _select,
    "truth": _truth,
    "invert": _invert,
    "quotient": _quotient,
    "as": lambda code, node, arguments, width: arguments[0],
    "shift": _shift,
    "decode": _decode,
    "encode": _encode,
    "constant": _constant,
}
