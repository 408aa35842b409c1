"""Reductions: of free dimensions, of partitions, and of what tensor_scalar computes, also as a running value."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from nki.core.dtypes import (
    bfloat16,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    uint8,
    uint16,
)
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.accumulator import (
    Command,
    Result,
    accumulate,
    command_rule,
    held,
    initial_rules,
    operator_rule,
    result_rule,
)
from nki.isa.alu import (
    ABS_MAX,
    ABS_MIN,
    ADD,
    AVERAGE,
    BITWISE_AND,
    BITWISE_OR,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    RELU,
    SQUARE,
    SUBTRACT,
    apply,
)
from nki.isa.indirection import indirection_rules, no_indirection
from nki.isa.integer_precision import check_sum, is_integer32
from nki.isa.shared import as_bits, bitvec_integers, on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import UNPUBLISHED, streams
from nki.spec.cost_vector import PARTITION_REDUCE, TENSOR_SCALAR_REDUCE
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.instruction import instruction
from nki.spec.operand import ON_CHIP, Dst, Flag, Ints, Name, Op, Operand, SbufDst, SbufSrc, Src, column, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_OPERATORS = "nki/api/nki.api.shared.rst, Supported Math Operators"

_Float32Column = Annotated["float | NkiTensor", column((float32,))]
_OptionalColumn = Annotated["float | NkiTensor | None", Operand("column", reads=True, dtypes=(float32,))]


# ---- free dimensions


def _reduced_axes(a: Any) -> list[int]:
    """The axes counted from the front, ascending."""
    return sorted(axis + a.data.ndim if axis < 0 else axis for axis in a.axis)


def _trailing(a: Any, t: Target) -> bool:
    axes = _reduced_axes(a)
    return bool(axes) and axes == list(range(a.data.ndim - len(axes), a.data.ndim)) and axes[0] > 0


def _left(a: Any) -> tuple[int, ...]:
    """Shape that the reduction leaves; a tile has at least two dimensions."""
    shape = a.data.shape[: _reduced_axes(a)[0]]
    return shape if len(shape) > 1 else (*shape, 1)


def _kept(a: Any) -> int:
    """Elements per partition that the reduction leaves."""
    return prod(a.data.shape[1 : _reduced_axes(a)[0]])


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        Rule(
            "operator",
            "op is an operator that reduces",
            lambda a, t: a.op.reduces,
            _OPERATORS,
            "use nl.add, subtract, multiply, maximum, minimum, or a bitwise or logical and, or, xor",
            lambda a, t: f"op is nl.{a.op}",
        ),
        Rule(
            "axis",
            "axis names the last dimensions without a gap, and not the partitions (axis 0)",
            _trailing,
            _ISA,
            "permute the tensor so that what is reduced comes last; for partitions use nisa.nc_transpose or nc_matmul",
            lambda a, t: f"axis is {a.axis}, data has the shape {list(a.data.shape)}",
        ),
        Rule(
            "shapes",
            "dst has the partitions of data, and the elements per partition that the reduction leaves",
            lambda a, t: not _trailing(a, t) or (a.dst.shape[0], a.dst.free_size) == (a.data.shape[0], _kept(a)),
            _ISA,
            "give dst the shape of data without the reduced dimensions",
            lambda a, t: f"dst is {list(a.dst.shape)}, data is {list(a.data.shape)}, axis is {a.axis}",
            remedy=lambda a, t: f"give dst the shape ({', '.join(map(str, _left(a)))})",
        ),
        Rule(
            "negate",
            "negate goes with arithmetic operators",
            lambda a, t: not (a.negate and a.op.is_bitvec),
            _ISA,
            "omit negate, or use nl.invert afterwards",
            lambda a, t: f"op is nl.{a.op}",
        ),
        bitvec_integers("dst", "data"),
        *indirection_rules("dst", "data", Engine.vector),
    ],
    steps=streams("TensorReduce", "data"),
)
def tensor_reduce(
    dst: Dst, op: Op, data: Src, axis: Ints, negate: Flag = False, keepdims: Flag = False, name: Name = None
) -> None:
    """``dst = reduction of data over its last dimensions``, partition by partition, on Vector.

    Arithmetic is float32 with one rounding to the dtype of `dst`; nl.subtract takes all other elements from the first.
    nl.add has one sum for each result, from 0.0 on, to which the elements are added in row-major order; what a device
    does with the other operators is not published. Logical operators give 1 or 0. Bitvec operators work on the bits of
    integers.

    Args:
        dst: SBUF or PSUM, with one element for each reduction; its own dimensions are free.
        op: nl.add, subtract, multiply, maximum, minimum, bitwise_and, bitwise_or, bitwise_xor, logical_and, logical_or
            or logical_xor.
        data: SBUF or PSUM, any dtype.
        axis: an int or several: dimensions of `data` as it is passed, the last ones without a gap; negative ones count
            from the end. Dimension 0 holds the partitions and is not reduced.
        negate: multiply the result by -1; not for bitvec operators.
        keepdims: whether the caller thinks of the reduced dimensions as kept with size 1; since `dst` is given and
            matched by its number of elements, both values do the same.
    """


@tensor_reduce.body
def _(a: Any, x: Arrays) -> None:
    partitions, kept = a.data.shape[0], _kept(a)
    grouped = (partitions, kept, a.data.free_size // kept)
    if a.op.is_bitvec:
        bits = x.reduce_bits(a.op, x.reshape(x.load_raw(as_bits(a.data)), grouped))
        x.store_raw(as_bits(a.dst), x.reshape(bits, (partitions, kept)))
        return
    values = x.reshape(x.load(a.data), grouped)
    in_order = a.op == ADD and x.target.has("sums_in_order")
    result = x.reshape(x.sum_in_order(values) if in_order else x.reduce(a.op, values), (partitions, kept))
    if a.op in (ADD, SUBTRACT, MULTIPLY) and is_integer32(a.data) and is_integer32(a.dst):
        check_sum(x, a.data, result)
    x.store(a.dst, x.negative(result) if a.negate else result)


# ---- partitions

_ACROSS = (ADD, AVERAGE, MAXIMUM, BITWISE_OR, BITWISE_AND)


@instruction(
    engines=(Engine.gpsimd,),
    source=_ISA,
    rules=[
        Rule(
            "operator",
            "op is nl.add, nl.average, nl.maximum, nl.bitwise_or or nl.bitwise_and",
            lambda a, t: a.op in _ACROSS,
            _ISA,
            "transpose with nisa.nc_transpose and use nisa.tensor_reduce",
            lambda a, t: f"op is nl.{a.op}",
        ),
        Rule(
            "shapes",
            "dst has one partition, and the elements per partition of data",
            lambda a, t: (a.dst.shape[0], a.dst.free_size) == (1, a.data.free_size),
            _ISA,
            "allocate dst as (1, elements per partition)",
            lambda a, t: f"dst is {list(a.dst.shape)}, data is {list(a.data.shape)}",
        ),
        bitvec_integers("dst", "data"),
        no_indirection(),
    ],
    steps=PARTITION_REDUCE,
)
def tensor_partition_reduce(dst: SbufDst, op: Op, data: SbufSrc, name: Name = None) -> None:
    """``dst = reduction of data over its partitions`` on GpSimd.

    Arithmetic is float32 with one rounding to the dtype of `dst`; bitvec operators work on the bits of integers.

    Args:
        dst: SBUF ``(1, elements per partition of data)``.
        op: nl.add, average, maximum, bitwise_or or bitwise_and.
        data: SBUF, any dtype.
    """


@tensor_partition_reduce.body
def _(a: Any, x: Arrays) -> None:
    shape = (1, a.data.free_size)
    if a.op.is_bitvec:
        bits = x.reduce_bits(a.op, x.transpose(x.load_raw(as_bits(a.data))))
        x.store_raw(as_bits(a.dst), x.reshape(bits, shape))
        return
    result = x.reduce(ADD if a.op == AVERAGE else a.op, x.transpose(x.load(a.data)))
    if a.op == AVERAGE:
        result = x.divide(result, x.constant(float(a.data.shape[0])))
    x.store(a.dst, x.reshape(result, shape))


# ---- what tensor_scalar computes

_OP0_RULES = [
    Rule(
        "operator",
        "op0 is an arithmetic operator",
        lambda a, t: a.op0.alu is not None and not a.op0.is_bitvec,
        _ISA,
        "use nisa.tensor_scalar for bitvec operators, nisa.activation for functions",
        lambda a, t: f"op0 is nl.{a.op0}",
    ),
    Rule(
        "operator-target",
        "op0 exists on the target",
        lambda a, t: (
            (a.op0 not in (ABS_MAX, ABS_MIN) or t.has("abs_max"))
            and (a.op0 not in (SQUARE, RELU) or t.has("tensor_scalar_unary"))
        ),
        "release-notes/components/nki.rst, NKI 0.4.0",
        "use nl.multiply or nl.maximum, or compute it with nisa.activation",
        lambda a, t: f"op0 is nl.{a.op0}, the target is {t.name}",
    ),
]


def _operand_rule(name: str) -> Rule:
    """The second operand of op0 is there if op0 has two."""

    def holds(a: Any, t: Target) -> bool:
        operand = getattr(a, name)
        if a.op0.arity == 2:
            return operand is not None
        return operand is None or (not isinstance(operand, View) and operand == 0)

    return Rule(
        "operand",
        f"{name} is a number or a tensor, and 0 or None if op0 has one operand",
        holds,
        _ISA,
        f"pass the second operand of op0, or {name}=0.0 for nl.abs and the like",
        lambda a, t: f"op0 is nl.{a.op0}, {name} is {'missing' if getattr(a, name) is None else 'given'}",
    )


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "data"),
        *_OP0_RULES,
        _operand_rule("operand0"),
        Rule(
            "reverse",
            "reverse0 is not supported yet",
            lambda a, t: not a.reverse0,
            _ISA,
            "use nisa.tensor_scalar with reverse0 and then nisa.tensor_reduce",
            lambda a, t: "reverse0 is True",
        ),
        operator_rule((ADD, MULTIPLY, MAXIMUM, MINIMUM)),
        command_rule(reduce_cmd.reduce, reduce_cmd.load_reduce, reduce_cmd.reset_reduce),
        *initial_rules("reduce_init"),
        on_partitions_of("data", "operand0", "reduce_init"),
        result_rule("data"),
        Rule(
            "reduce-res-negate",
            "reduce_res_negate goes with reduce_res",
            lambda a, t: not a.reduce_res_negate or a.reduce_res is not None,
            _ISA,
            "pass reduce_res, or omit reduce_res_negate",
            lambda a, t: "reduce_res_negate is True, and there is no reduce_res to negate",
            severity="warning",
        ),
        *indirection_rules("dst", "data", Engine.vector),
    ],
    steps=TENSOR_SCALAR_REDUCE,
    effects=("accumulator",),
)
def tensor_scalar_reduce(
    dst: Dst,
    data: Src,
    op0: Op,
    operand0: _OptionalColumn,
    reduce_op: Op,
    reduce_res: Result = None,
    reverse0: Flag = False,
    reduce_cmd: Command = reduce_cmd.reset_reduce,
    reduce_init: _OptionalColumn = None,
    reduce_res_negate: Flag = False,
    name: Name = None,
) -> None:
    """``dst = data <op0> operand0``, and the reduction of the result over all free dimensions, on Vector.

    Arithmetic is float32 with one rounding to the dtype of `dst`; the reduction takes the values before it. It goes to
    the accumulator registers of Vector, which all its reducing instructions share: ``reset_reduce`` starts anew,
    ``reduce`` goes on from what they hold, ``load_reduce`` starts from `reduce_init`. Without `reduce_res` the result
    stays there.

    Args:
        dst, data: SBUF or PSUM, any dtype, the same partitions and elements per partition.
        op0: an arithmetic operator; nl.square and nl.relu, abs_max and abs_min from NeuronCore-v4 on.
        operand0: a number, or a float32 tensor ``(P, 1)``; 0 or None if `op0` has one operand.
        reduce_op: nl.add, multiply, maximum or minimum.
        reduce_res: ``(P, 1)`` in SBUF or PSUM, gets the registers after the command; written after `dst`.
        reverse0: False; the hardware interface does not support it yet.
        reduce_init: a number, or a float32 tensor ``(P, 1)``; for ``load_reduce``.
        reduce_res_negate: write the negative of the registers to `reduce_res`; they themselves stay as they are.
    """


@tensor_scalar_reduce.body
def _(a: Any, x: Arrays) -> None:
    partitions = a.data.shape[0]
    result = apply(x, a.op0, x.load(a.data), x.column(0.0 if a.operand0 is None else a.operand0))
    initial = None if a.reduce_init is None else x.column(a.reduce_init)
    accumulate(x, a.reduce_cmd, a.reduce_op, result, partitions, initial)
    x.store(a.dst, result)
    if a.reduce_res is not None:
        registers = held(x, partitions)
        x.store(a.reduce_res, x.negative(registers) if a.reduce_res_negate else registers)


_RUNNING = (float32, bfloat16, float16, float8_e4m3, float8_e4m3fn, float8_e5m2, uint8, uint16, int8, int16)


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "src"),
        *_OP0_RULES,
        _operand_rule("imm0"),
        Rule(
            "running-operator",
            "op1 is nl.add, nl.subtract, nl.multiply, nl.maximum or nl.minimum",
            lambda a, t: a.op1 in (ADD, SUBTRACT, MULTIPLY, MAXIMUM, MINIMUM),
            _ISA,
            "use nisa.tensor_tensor_scan for other operators",
            lambda a, t: f"op1 is nl.{a.op1}",
        ),
        command_rule(reduce_cmd.reduce, reduce_cmd.load_reduce, reduce_cmd.reset_reduce),
        *initial_rules("imm1"),
        on_partitions_of("src", "imm0", "imm1"),
        *indirection_rules("dst", "src", Engine.vector),
    ],
    steps=streams("TensorScalarCumulative", "src", "dst", source="", estimate=UNPUBLISHED),
    effects=("accumulator",),
)
def tensor_scalar_cumulative(
    dst: Annotated[NkiTensor, out(ON_CHIP, _RUNNING)],
    src: Annotated[NkiTensor, source(ON_CHIP, _RUNNING)],
    op0: Op,
    op1: Op,
    imm0: _Float32Column,
    imm1: _OptionalColumn = None,
    reduce_cmd: Command = reduce_cmd.reset_reduce,
    name: Name = None,
) -> None:
    """``dst[i] = r[i]`` with the running value ``r[i] = (src[i] <op0> imm0) <op1> r[i - 1]``, on Vector.

    The elements of a partition follow each other in row-major order. The running value is float32; only what is stored
    rounds to the dtype of `dst`. It lives in the accumulator registers of Vector, which all its reducing instructions
    share: ``reset_reduce`` starts from the identity of `op1` (0 for add and subtract, 1 for multiply, -inf for
    maximum, inf for minimum), ``reduce`` from what the registers hold, ``load_reduce`` from `imm1`.

    Args:
        dst, src: SBUF or PSUM, the same partitions and elements per partition; floats (not tfloat32), 8-bit or 16-bit
            integers.
        op0: an arithmetic operator; if it has one operand, `imm0` is 0.
        op1: nl.add, subtract, multiply, maximum or minimum; nl.subtract takes the old value from the new one.
        imm0, imm1: numbers, or float32 tensors ``(P, 1)``.
    """


@tensor_scalar_cumulative.body
def _(a: Any, x: Arrays) -> None:
    partitions, count = a.src.shape[0], a.src.free_size
    values = apply(x, a.op0, x.load(a.src), x.column(a.imm0))
    if a.reduce_cmd is reduce_cmd.reduce:
        initial = held(x, partitions)
    elif a.reduce_cmd is reduce_cmd.load_reduce:
        initial = x.column(a.imm1)
    else:
        initial = x.constant(a.op1.identity)
    running = x.recurrence(
        lambda state, value: apply(x, a.op1, value, state), x.broadcast(initial, partitions, 1), values
    )
    x.write_accumulator(x.every(running, count - 1, 1))
    x.store(a.dst, running)
