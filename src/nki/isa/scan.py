"""Two operators in sequence on two tensors: element by element, and as a recurrence along the free dimensions."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import as_dtype
from nki.isa.alu import ABS_MAX, ABS_MIN, apply
from nki.isa.indirection import no_indirection
from nki.isa.shared import not_both_psum, on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import two_inputs
from nki.spec.cost_vector import SCAN
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import Column, Dst, Flag, Name, Op, Src
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_OPERATORS = "nki/api/nki.api.shared.rst, Supported Math Operators"

_BINARY_RULES = [
    Rule(
        "operators",
        "op0 and op1 are arithmetic operators with two operands",
        lambda a, t: all(op.alu is not None and not op.is_bitvec and op.arity == 2 for op in (a.op0, a.op1)),
        _OPERATORS,
        "use nisa.activation for functions, nisa.tensor_tensor for bitvec operators",
        lambda a, t: f"op0 is nl.{a.op0}, op1 is nl.{a.op1}",
    ),
    Rule(
        "operator-target",
        "the operators exist on the target",
        lambda a, t: t.has("abs_max") or not {a.op0, a.op1} & {ABS_MAX, ABS_MIN},
        _ISA,
        "compute it with nl.abs and nl.maximum",
        lambda a, t: f"op0 is nl.{a.op0}, op1 is nl.{a.op1}, the target is {t.name}",
    ),
]


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "data0", "data1"),
        not_both_psum("data0", "data1"),
        *_BINARY_RULES,
        on_partitions_of("data0", "initial"),
        no_indirection(),
    ],
    steps=SCAN,
)
def tensor_tensor_scan(
    dst: Dst,
    data0: Src,
    data1: Src,
    initial: Column,
    op0: Op,
    op1: Op,
    reverse0: Flag = False,
    reverse1: Flag = False,
    name: Name = None,
) -> None:
    """``dst[i] = (data0[i] <op0> dst[i - 1]) <op1> data1[i]``, from ``dst[-1] = initial``, on Vector.

    The elements of a partition follow each other in row-major order. The state that goes from one to the next is
    float32, whatever the dtype of `dst`, to which only the stored values round.

    Args:
        dst, data0, data1: SBUF or PSUM, any dtype, the same partitions and elements per partition; data0 and data1 not
            both in PSUM.
        initial: a number, or a tensor ``(P, 1)``.
        op0, op1: arithmetic operators with two operands.
        reverse0: ``dst[i - 1] <op0> data0[i]`` instead.
        reverse1: ``data1[i] <op1> ...`` instead.
    """


@tensor_tensor_scan.body
def _(a: Any, x: Arrays) -> None:
    def step(state: Any, first: Any, second: Any) -> Any:
        return apply(x, a.op1, apply(x, a.op0, first, state, a.reverse0), second, a.reverse1)

    initial = x.broadcast(x.column(a.initial), a.data0.shape[0], 1)
    x.store(a.dst, x.recurrence(step, initial, x.load(a.data0), x.load(a.data1)))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "data", "operand1"),
        not_both_psum("data", "operand1"),
        *_BINARY_RULES,
        on_partitions_of("data", "operand0"),
        no_indirection(),
    ],
    deprecated=[
        Deprecated(
            "dtype",
            "give dst the dtype that the result should have",
            lambda value, bound: as_dtype(value) == bound["dst"].dtype,
            "it differs from the dtype of dst",
        ),
    ],
    steps=two_inputs("ScalarTensorTensor", "data", "operand1", source=_ISA),
)
def scalar_tensor_tensor(
    dst: Dst,
    data: Src,
    op0: Op,
    operand0: Column,
    op1: Op,
    operand1: Src,
    reverse0: Flag = False,
    reverse1: Flag = False,
    name: Name = None,
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1``, element by element, on Vector.

    Arithmetic is float32 with one rounding to the dtype of `dst`.

    Args:
        dst, data, operand1: SBUF or PSUM, any dtype, the same partitions and elements per partition; data and operand1
            not both in PSUM.
        op0, op1: arithmetic operators with two operands.
        operand0: a number, or a tensor ``(P, 1)``.
        reverse0, reverse1: swap the operands of the operator.
    """


@scalar_tensor_tensor.body
def _(a: Any, x: Arrays) -> None:
    first = apply(x, a.op0, x.load(a.data), x.column(a.operand0), a.reverse0)
    x.store(a.dst, apply(x, a.op1, first, x.load(a.operand1), a.reverse1))
