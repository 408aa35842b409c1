"""Element-wise instructions of the Vector, Scalar and GpSimd engines with two inputs."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.alu import ADD, MULTIPLY, POWER, RSQRT, apply, apply_bits
from nki.isa.shared import bitvec_integers, in_psum, not_both_psum, same_elements
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Dst, Flag, Name, Op, Operand, Src, choice
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_OptionalColumn = Annotated["float | NkiTensor | None", Operand("column", reads=True)]
_OptionalOp = Annotated[Any, Operand("operator")]
_EngineChoice = Annotated[Engine, choice(Engine)]


def _integer32(*views: View) -> bool:
    return all(view.dtype in (int32, uint32) for view in views)


def _tensor_tensor_engine(a: Any, t: Target) -> Engine:
    if a.op == POWER:
        return Engine.gpsimd
    views = (a.dst, a.data1, a.data2)
    if _integer32(*views) and not a.op.is_bitvec and not any(in_psum(v) for v in views):
        return Engine.gpsimd
    return Engine.vector


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
            "nki/api/nki.api.shared.rst",
            "use for example nl.add, or nisa.activation for functions",
            lambda a, t: f"op is nl.{a.op}",
        ),
        Rule(
            "operator-target",
            "the operator exists on the target",
            lambda a, t: a.op.name not in ("abs_max", "abs_min") or t.has("abs_max"),
            _ISA,
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
    ],
)
def tensor_tensor(
    dst: Dst, data1: Src, data2: Src, op: Op, engine: _EngineChoice = Engine.unknown, name: Name = None
) -> None:
    """``dst = data1 <op> data2``, element by element, on Vector or GpSimd.

    Inputs and output have the same number of partitions and of elements per partition; nothing is broadcast.
    Arithmetic is float32 and rounds to the dtype of `dst`. If all three are int32 or uint32 in SBUF, GpSimd computes
    exactly; with an operand in PSUM, or ``engine=nisa.engine.vector``, integers pass through float32. ``nl.power``
    runs on GpSimd.

    Args:
        dst: SBUF or PSUM, any dtype.
        data1, data2: SBUF or PSUM, not both PSUM.
        op: binary operator; bitvec operators need integers.
    """


@tensor_tensor.body
def _(a: Any, x: Arrays) -> None:
    if a.op.is_bitvec:
        x.store_raw(a.dst, apply_bits(x, a.op, x.load_raw(a.data1), x.load_raw(a.data2)))
    elif x.engine is Engine.gpsimd and a.op != POWER and _integer32(a.dst, a.data1, a.data2) and a.op.alu != "logical":
        x.store_raw(a.dst, x.integer(a.op.name, x.load_raw(a.data1), x.load_raw(a.data2), a.dst.dtype))
    else:
        x.store(a.dst, apply(x, a.op, x.load(a.data1), x.load(a.data2)))


def _operators(a: Any) -> list[Any]:
    return [op for op in (a.op0, a.op1) if op is not None]


def _tensor_scalar_engine(a: Any, t: Target) -> Engine:
    return Engine.gpsimd if a.op0 == RSQRT else Engine.vector


def _scalar_engine_pair(a: Any, t: Target) -> bool:
    if a.engine is not Engine.scalar or t.has("scalar_tensor_scalar_any_op"):
        return True
    return (a.op0, a.op1) in ((MULTIPLY, ADD), (MULTIPLY, None), (ADD, None))


@instruction(
    engines=(Engine.vector, Engine.scalar, Engine.gpsimd),
    choose=_tensor_scalar_engine,
    source=_ISA,
    rules=[
        same_elements("dst", "data"),
        Rule(
            "operator",
            "op0 and op1 are ALU operators",
            lambda a, t: all(op.alu is not None for op in _operators(a)),
            "nki/api/nki.api.shared.rst",
            "use nisa.activation for functions of the Scalar engine",
            lambda a, t: ", ".join(f"nl.{op}" for op in _operators(a)),
        ),
        Rule(
            "mixed-classes",
            "op0 and op1 are both bitvec or both arithmetic",
            lambda a, t: len({op.is_bitvec for op in _operators(a)}) == 1,
            _ISA,
            "use two instructions",
            lambda a, t: f"op0 is nl.{a.op0}, op1 is nl.{a.op1}",
        ),
        Rule(
            "operand1",
            "op1 and operand1 are given together",
            lambda a, t: (a.op1 is None) == (a.operand1 is None) or (a.op1 is not None and a.op1.arity == 1),
            _ISA,
            "give both or neither",
            lambda a, t: f"op1 is {a.op1}, operand1 is {'given' if a.operand1 is not None else 'missing'}",
        ),
        Rule(
            "operand0",
            "operand0 is given unless op0 has one operand",
            lambda a, t: a.operand0 is not None or a.op0.arity == 1,
            _ISA,
            "pass operand0",
            lambda a, t: f"op0 is nl.{a.op0}, operand0 is None",
        ),
        Rule(
            "unary-operand",
            "a unary op0 has operand0 None or 0",
            lambda a, t: (
                a.op0.arity == 2 or a.operand0 is None or (not isinstance(a.operand0, View) and a.operand0 == 0)
            ),
            _ISA,
            "pass operand0=0.0",
            lambda a, t: f"op0 is nl.{a.op0}",
        ),
        bitvec_integers("dst", "data"),
        Rule(
            "operand-dtype",
            "tensor operands of arithmetic operators are float32",
            lambda a, t: all(
                not isinstance(v, View) or v.dtype == "float32" or a.op0.is_bitvec for v in (a.operand0, a.operand1)
            ),
            _ISA,
            "cast the operand to float32",
            lambda a, t: ", ".join(
                f"{n} is {v.dtype}"
                for n, v in (("operand0", a.operand0), ("operand1", a.operand1))
                if isinstance(v, View)
            ),
        ),
        Rule(
            "operand-partitions",
            "tensor operands have the partitions of data",
            lambda a, t: all(
                not isinstance(v, View) or v.shape[0] == a.data.shape[0] for v in (a.operand0, a.operand1)
            ),
            _ISA,
            "slice the operand to the partitions of data",
            lambda a, t: f"data has {a.data.shape[0]} partitions",
        ),
        Rule(
            "scalar-engine",
            "the Scalar engine runs (multiply, add), multiply or add here",
            _scalar_engine_pair,
            _ISA,
            "use engine=nisa.engine.vector",
            lambda a, t: f"op0 is nl.{a.op0}, op1 is {a.op1}",
        ),
        Rule(
            "scalar-target",
            "tensor_scalar on the Scalar engine exists on the target",
            lambda a, t: a.engine is not Engine.scalar or t.has("scalar_tensor_scalar"),
            _ISA,
            "use nisa.activation",
            lambda a, t: f"the target is {t.name}",
        ),
        Rule(
            "gpsimd-engine",
            "GpSimd runs only nl.rsqrt here",
            lambda a, t: a.engine is not Engine.gpsimd or a.op0 == RSQRT,
            _ISA,
            "use engine=nisa.engine.vector",
            lambda a, t: f"op0 is nl.{a.op0}",
        ),
    ],
)
def tensor_scalar(
    dst: Dst,
    data: Src,
    op0: Op,
    operand0: _OptionalColumn,
    reverse0: Flag = False,
    op1: _OptionalOp = None,
    operand1: _OptionalColumn = None,
    reverse1: Flag = False,
    engine: _EngineChoice = Engine.unknown,
    name: Name = None,
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1`` with numbers or per-partition columns as operands.

    Arithmetic is float32 and rounds to the dtype of `dst` once; bitvec operators work on integers as they are. The
    second operator is free.

    Args:
        dst, data: SBUF or PSUM, the same number of elements per partition.
        op0, op1: both arithmetic or both bitvec; op1 is optional.
        operand0, operand1: numbers, or float32 tensors ``(P, 1)``.
        reverse0, reverse1: swap the operands of the operator.
    """


@tensor_scalar.body
def _(a: Any, x: Arrays) -> None:
    if a.op0.is_bitvec:
        value = x.load_raw(a.data)
        for op, operand, reverse in ((a.op0, a.operand0, a.reverse0), (a.op1, a.operand1, a.reverse1)):
            if op is not None:
                value = apply_bits(x, op, value, _raw_operand(x, operand, a.data), reverse)
        x.store_raw(a.dst, value)
        return
    result = x.load(a.data)
    for op, operand, reverse in ((a.op0, a.operand0, a.reverse0), (a.op1, a.operand1, a.reverse1)):
        if op is not None:
            result = apply(
                x, op, result, x.column(operand or 0.0 if not isinstance(operand, View) else operand), reverse
            )
    x.store(a.dst, result)


def _raw_operand(x: Arrays, operand: Any, data: View) -> Any:
    if isinstance(operand, View):
        return x.load_raw(operand)
    return data.dtype.numpy.type(int(operand or 0))
