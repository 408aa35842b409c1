"""What tensor_scalar demands of its operators, their operands and the engine."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import float32, int32, uint32
from nki.core.tensor import FreeIndirection, View
from nki.isa.alu import ABS_MAX, ABS_MIN, ADD, MULTIPLY, RELU, RSQRT, SQUARE
from nki.isa.indirection import indirection_rules
from nki.isa.shared import bitvec_integers, in_psum, same_elements
from nki.spec.engine import engine as Engine
from nki.spec.operator import Operator
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_INDIRECTION = "nki/api/nki/isa, Tensor indirection"
_OPERATORS = "nki/api/nki.api.shared.rst, Supported Math Operators"
_NEWS = "release-notes/components/nki.rst, NKI 0.4.0"
_SCALAR_ENGINE = [(MULTIPLY, ADD), (MULTIPLY,), (ADD,)]


def steps(a: Any) -> list[tuple[Operator, Any, bool]]:
    """The operators in order, with their second operand, and whether that comes first."""
    both = ((a.op0, a.operand0, a.reverse0), (a.op1, a.operand1, a.reverse1))
    return [(op, operand, reverse and op.arity == 2) for op, operand, reverse in both if op is not None]


def operators(a: Any) -> list[Operator]:
    """The operators in order."""
    return [op for op, _, _ in steps(a)]


def is_bitvec(a: Any) -> bool:
    """Whether the instruction works on bits."""
    return any(op.is_bitvec for op in operators(a))


def _column_fix(a: Any, t: Target) -> str:
    if any(view.shape[0] == 1 for view in _operand_views(a)):
        load = f"nisa.dma_copy(dst=tile, src=row.broadcast(0, {a.data.shape[0]}))"
        return f"pass a Python number, or load it into a tile of ({a.data.shape[0]}, 1): {load}"
    return "slice the operand to the partitions of data"


def _shown(a: Any) -> str:
    return f"op0 is {a.op0!r}, op1 is {a.op1!r}"


def _scalar_engine_pair(a: Any, t: Target) -> bool:
    if a.engine is not Engine.scalar or is_bitvec(a) or t.has("scalar_tensor_scalar_any_op"):
        return True
    return t.has("scalar_tensor_scalar") and tuple(operators(a)) in _SCALAR_ENGINE


def _exists(op: Operator, t: Target) -> bool:
    if op in (ABS_MAX, ABS_MIN):
        return t.has("abs_max")
    return op not in (SQUARE, RELU) or t.has("tensor_scalar_unary")


def _operand_rule(op_name: str, name: str) -> Rule:
    """The second operand of an operator is there if the operator has two."""

    def holds(a: Any, t: Target) -> bool:
        op, operand = getattr(a, op_name), getattr(a, name)
        if op is None:
            return operand is None
        if op.arity == 2:
            return operand is not None
        return operand is None or (not isinstance(operand, View) and operand == 0)

    return Rule(
        name,
        f"{name} is given if {op_name} has two operands, None or 0 if it has one, and None without {op_name}",
        holds,
        _ISA,
        f"pass {op_name} and {name} together; for nl.abs and the like pass {name}=0.0",
        lambda a, t: (
            f"{op_name} is {getattr(a, op_name)!r}, {name} is {'missing' if getattr(a, name) is None else 'given'}"
        ),
    )


def _operand_views(a: Any) -> list[View]:
    return [operand for operand in (a.operand0, a.operand1) if isinstance(operand, View)]


def _fits_bits(a: Any, t: Target) -> bool:
    """Whether numbers for bitvec operators are bit patterns of the width of data, signed or not."""
    numbers = [operand for _, operand, _ in steps(a) if operand is not None and not isinstance(operand, View)]
    bits = a.data.dtype.bits
    return not is_bitvec(a) or all(n == n // 1 and -(1 << (bits - 1)) <= n < 1 << bits for n in numbers)


def _indirect(view: View) -> bool:
    return isinstance(view.dynamic, FreeIndirection)


def _gathers_addresses(a: Any) -> bool:
    views = (a.dst, a.data)
    return any(_indirect(view) for view in views) and all(view.dtype in (int32, uint32) for view in views)


TENSOR_SCALAR_RULES = [
    same_elements("dst", "data"),
    Rule(
        "operator",
        "op0 and op1 are ALU operators",
        lambda a, t: all(op.alu is not None for op in operators(a)),
        _OPERATORS,
        "use nisa.activation for functions of the Scalar engine",
        lambda a, t: _shown(a),
    ),
    Rule(
        "operator-target",
        "op0 and op1 exist on the target",
        lambda a, t: all(_exists(op, t) for op in operators(a)),
        _NEWS,
        "use nl.multiply or nl.maximum, or compute it with nisa.activation",
        lambda a, t: f"{_shown(a)}, the target is {t.name}",
    ),
    Rule(
        "mixed-classes",
        "op0 and op1 are both bitvec or both arithmetic",
        lambda a, t: len({op.is_bitvec for op in operators(a)}) <= 1,
        _ISA,
        "use two instructions",
        lambda a, t: _shown(a),
    ),
    _operand_rule("op0", "operand0"),
    _operand_rule("op1", "operand1"),
    bitvec_integers("dst", "data", "operand0", "operand1"),
    Rule(
        "bitvec-number",
        "a number for a bitvec operator is whole and has no more bits than data",
        _fits_bits,
        _ISA,
        "pass an int that fits the dtype of data",
        lambda a, t: f"operand0 is {a.operand0!r}, operand1 is {a.operand1!r}, data is {a.data.dtype}",
    ),
    Rule(
        "operand-dtype",
        "tensor operands of arithmetic operators are float32",
        lambda a, t: is_bitvec(a) or all(v.dtype == float32 for v in _operand_views(a)),
        _ISA,
        "cast the operand to float32",
        lambda a, t: "a tensor operand is " + ", ".join(str(v.dtype) for v in _operand_views(a)),
    ),
    Rule(
        "operand-partitions",
        "tensor operands have the partitions of data",
        lambda a, t: all(v.shape[0] == a.data.shape[0] for v in _operand_views(a)),
        _ISA,
        "slice the operand to the partitions of data",
        lambda a, t: (
            f"data has {a.data.shape[0]} partitions, "
            f"a tensor operand has {', '.join(str(v.shape[0]) for v in _operand_views(a))}"
        ),
        remedy=_column_fix,
    ),
    Rule(
        "bitvec-engine",
        "bitvec operators run on Vector",
        lambda a, t: not is_bitvec(a) or a.engine in (Engine.unknown, Engine.vector),
        _ISA,
        "omit engine",
        lambda a, t: f"engine is {a.engine.name}",
    ),
    Rule(
        "scalar-engine",
        "the Scalar engine of the target runs (multiply, add), multiply or add",
        _scalar_engine_pair,
        _ISA,
        "use engine=nisa.engine.vector",
        lambda a, t: f"{_shown(a)}, the target is {t.name}",
    ),
    Rule(
        "gpsimd-engine",
        "GpSimd runs only nl.rsqrt here",
        lambda a, t: a.engine is not Engine.gpsimd or is_bitvec(a) or RSQRT in operators(a),
        _ISA,
        "use engine=nisa.engine.vector",
        lambda a, t: _shown(a),
    ),
    *indirection_rules("dst", "data", Engine.vector),
    Rule(
        "indirect-psum",
        "the Scalar engine does not scatter to PSUM",
        lambda a, t: a.engine is not Engine.scalar or not _indirect(a.dst) or not in_psum(a.dst),
        _INDIRECTION,
        "scatter to SBUF, or use engine=nisa.engine.vector",
        lambda a, t: f"dst is {a.dst.describe()}",
    ),
    Rule(
        "indirect-address",
        "tensor indirection does not go with address arithmetic on int32 or uint32",
        lambda a, t: is_bitvec(a) or not _gathers_addresses(a),
        _INDIRECTION,
        "gather with nisa.tensor_copy first",
        lambda a, t: f"dst is {a.dst.dtype}, data is {a.data.dtype}",
        severity="warning",
    ),
]
