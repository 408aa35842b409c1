"""Element-wise instructions of the Vector, Scalar and GpSimd engines with two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from nki.core.dtypes import int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.alu import ABS_MAX, ABS_MIN, POWER, RSQRT, apply, apply_bits
from nki.isa.indirection import indirection_rules
from nki.isa.integer_precision import check_loaded, check_step, check_stored, is_integer32
from nki.isa.shared import as_bits, bitvec_integers, in_psum, not_both_psum, same_elements
from nki.isa.tensor_scalar_rules import TENSOR_SCALAR_RULES, is_bitvec, operators, steps
from nki.spec.arrays import Arrays
from nki.spec.cost_vector import TENSOR_SCALAR, TENSOR_TENSOR
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Dst, Flag, Name, Op, Operand, Src, choice
from nki.spec.operator import Operator
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_OPERATORS = "nki/api/nki.api.shared.rst, Supported Math Operators"
_NEWS = "release-notes/components/nki.rst, NKI 0.4.0"
_OptionalColumn = Annotated["float | NkiTensor | None", Operand("column", reads=True)]
_OptionalOp = Annotated[Any | None, Operand("operator")]
_EngineChoice = Annotated[Engine, choice(Engine)]


def _integer32(*views: View) -> bool:
    return all(view.dtype in (int32, uint32) for view in views)


# --- tensor_tensor


def _tensor_tensor_engine(a: Any, t: Target) -> Engine:
    if a.op == POWER:
        return Engine.gpsimd
    if a.op in (ABS_MAX, ABS_MIN) or a.op.is_bitvec:
        return Engine.vector
    views = (a.dst, a.data1, a.data2)
    return Engine.gpsimd if _integer32(*views) and not any(in_psum(v) for v in views) else Engine.vector


@instruction(
    engines=(Engine.vector, Engine.gpsimd),
    choose=_tensor_tensor_engine,
    source=_ISA,
    rules=[
        same_elements("dst", "data1", "data2"),
        not_both_psum("data1", "data2"),
        Rule(
            "operator",
            "op is a binary ALU operator",
            lambda a, t: a.op.alu is not None and a.op.arity == 2,
            _OPERATORS,
            "use for example nl.add, or nisa.activation for functions",
            lambda a, t: f"op is nl.{a.op}",
        ),
        Rule(
            "operator-target",
            "the operator exists on the target",
            lambda a, t: a.op not in (ABS_MAX, ABS_MIN) or t.has("abs_max"),
            _NEWS,
            "compute it with nl.abs and nl.maximum",
            lambda a, t: f"op is nl.{a.op}, the target is {t.name}",
        ),
        bitvec_integers("dst", "data1", "data2"),
        Rule(
            "power-engine",
            "nl.power runs on GpSimd",
            lambda a, t: a.op != POWER or a.engine in (Engine.unknown, Engine.gpsimd),
            _ISA,
            "omit engine",
            lambda a, t: f"engine is {a.engine.name}",
        ),
        Rule(
            "vector-engine",
            "bitvec operators, nl.abs_max and nl.abs_min run on Vector",
            lambda a, t: (
                not (a.op.is_bitvec or a.op in (ABS_MAX, ABS_MIN)) or a.engine in (Engine.unknown, Engine.vector)
            ),
            f"{_ISA}; {_NEWS}",
            "omit engine",
            lambda a, t: f"op is nl.{a.op}, engine is {a.engine.name}",
        ),
        *indirection_rules("dst", "data1", Engine.vector),
    ],
    steps=TENSOR_TENSOR,
)
def tensor_tensor(
    dst: Dst, data1: Src, data2: Src, op: Op, engine: _EngineChoice = Engine.unknown, name: Name = None
) -> None:
    """``dst = data1 <op> data2``, element by element, on Vector or GpSimd.

    Inputs and output have the same number of partitions and of elements per partition; nothing is broadcast.
    Arithmetic is float32 and rounds to the dtype of `dst`. If all three are int32 or uint32 in SBUF, GpSimd computes
    exactly in 32 bits that wrap; with an operand in PSUM, or ``engine=nisa.engine.vector``, integers pass through
    float32. ``nl.power`` runs on GpSimd. Shifts are logical, and a count of the width or more leaves 0.

    Args:
        dst: SBUF or PSUM, any dtype.
        data1, data2: SBUF or PSUM, not both PSUM.
        op: binary operator; bitvec operators need integers of one size.
    """


@tensor_tensor.body
def _(a: Any, x: Arrays) -> None:
    if a.op.is_bitvec:
        x.store_raw(as_bits(a.dst), apply_bits(x, a.op, x.load_raw(as_bits(a.data1)), x.load_raw(as_bits(a.data2))))
    elif x.engine is Engine.gpsimd and a.op != POWER and _integer32(a.dst, a.data1, a.data2) and a.op.alu != "logical":
        x.store_raw(a.dst, x.integer(a.op.name, x.load_raw(a.data1), x.load_raw(a.data2), a.dst.dtype))
    else:
        first, second = x.load(a.data1), x.load(a.data2)
        result = apply(x, a.op, first, second)
        if _is_watched(a.dst, (a.data1, a.data2), (a.op,)):
            for name, view, value in (("data1", a.data1, first), ("data2", a.data2, second)):
                if is_integer32(view):
                    check_loaded(x, name, view, value)
            _check_result(x, a.dst, ((a.op, first, second, result),))
        x.store(a.dst, result)


# --- tensor_scalar


def _tensor_scalar_engine(a: Any, t: Target) -> Engine:
    views = (a.dst, a.data, a.operand0, a.operand1)
    return Engine.gpsimd if RSQRT in operators(a) and not any(in_psum(v) for v in views) else Engine.vector


@instruction(
    engines=(Engine.vector, Engine.scalar, Engine.gpsimd),
    choose=_tensor_scalar_engine,
    source=_ISA,
    rules=TENSOR_SCALAR_RULES,
    steps=TENSOR_SCALAR,
)
def tensor_scalar(
    dst: Dst,
    data: Src,
    op0: _OptionalOp,
    operand0: _OptionalColumn,
    reverse0: Flag = False,
    op1: _OptionalOp = None,
    operand1: _OptionalColumn = None,
    reverse1: Flag = False,
    engine: _EngineChoice = Engine.unknown,
    name: Name = None,
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1`` with numbers or per-partition columns as operands.

    Arithmetic is float32, integers included, and rounds to the dtype of `dst` once; bitvec operators work on integers
    as they are, and run on Vector. The second operator is free. nl.rsqrt runs on GpSimd unless an operand is in PSUM.
    The Scalar engine takes all arithmetic operators from NeuronCore-v4 on, before only multiply, add, and multiply
    followed by add.

    Kernels in use pass None as `op0` to leave that step out (with `operand0` None); the documents do not mention it.
    They do not say either which operators count as the address arithmetic that excludes tensor indirection: all
    arithmetic from 32-bit integers to 32-bit integers is reported.

    Args:
        dst, data: SBUF or PSUM, the same number of elements per partition.
        op0, op1: both arithmetic or both bitvec; op1 is optional. nl.square, nl.relu, nl.abs_max and nl.abs_min from
            NeuronCore-v4 on.
        operand0, operand1: numbers, or tensors ``(P, 1)``: float32 for arithmetic, integers of the size of `data` for
            bitvec operators. None or 0 for an operator with one operand.
        reverse0, reverse1: swap the operands of the operator, if it has two.
    """


@tensor_scalar.body
def _(a: Any, x: Arrays) -> None:
    if is_bitvec(a):
        value = x.load_raw(as_bits(a.data))
        for op, operand, reverse in steps(a):
            value = apply_bits(x, op, value, _pattern(x, operand, a.data), reverse)
        x.store_raw(as_bits(a.dst), value)
        return
    value = result = x.load(a.data)
    done = []
    for op, operand, reverse in steps(a):
        other, before = x.column(0.0 if operand is None else operand), result
        result = apply(x, op, before, other, reverse)
        done.append((op, other, before, result) if reverse else (op, before, other, result))
    if _is_watched(a.dst, (a.data,), operators(a)):
        check_loaded(x, "data", a.data, value)
        _check_result(x, a.dst, done)
    x.store(a.dst, result)


def _is_watched(dst: View, data: Sequence[View], used: Sequence[Operator]) -> bool:
    """Whether 32-bit integers are compared, or meant to become others, and go through float32.

    What is rounded is as true as before, so that logical operators lose nothing.
    """
    if used and used[0].alu == "logical":
        return False
    whole = is_integer32(dst) or any(op.alu == "compare" for op in used)
    return whole and any(is_integer32(view) for view in data)


def _check_result(x: Arrays, dst: View, done: Sequence[tuple[Operator, Any, Any, Any]]) -> None:
    """Warn about what the steps round; `done` has their operators, operands and results."""
    if not is_integer32(dst):
        return
    for op, first, second, result in done:
        check_step(x, op, first, second, result)
    check_stored(x, dst, done[-1][3])


def _pattern(x: Arrays, operand: Any, data: View) -> Any:
    """The bits of an operand; negative numbers are two's complement."""
    if isinstance(operand, View):
        return x.load_raw(as_bits(operand))
    number = int(operand or 0) % (1 << data.dtype.bits)
    return as_bits(data).dtype.numpy.type(number)
