"""Selections by range or predicate that keep a running maximum in the accumulator registers of Vector."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import (
    BY_NAME,
    DType,
    bool_,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MIN
from nki.isa.accumulator import Command, accumulate, command_rule, held, operator_rule, result_rule
from nki.isa.alu import EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, MAXIMUM
from nki.isa.indirection import no_indirection
from nki.isa.shared import not_both_psum, on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import OLDER, streams, two_inputs
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.instruction import instruction
from nki.spec.operand import (
    ON_CHIP,
    Column,
    Flag,
    Int,
    Name,
    Number,
    Op,
    out,
    source,
)
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_EXACT_FP32 = 1 << 24
_RANGE_OPS = (EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL)
# What passes through float32: every dtype of the device but the packed ones.
_NUMERIC: tuple[DType, ...] = tuple(d for d in BY_NAME.values() if d.device and not d.is_packed)
_FLOATS: tuple[DType, ...] = tuple(d for d in _NUMERIC if d.is_float)

_NumericDst = Annotated[NkiTensor, out(ON_CHIP, _NUMERIC)]
_Bound = Annotated[NkiTensor, source(dtypes=(float32,))]


def _bound_rule(name: str) -> Rule:
    """A bound has one element for every partition."""
    return Rule(
        name,
        f"{name} has one element for each partition of dst",
        lambda a, t: (getattr(a, name).shape[0], getattr(a, name).free_size) == (a.dst.shape[0], 1),
        _ISA,
        f"slice one column of {name}, on the partitions of dst",
        lambda a, t: f"{name} is {getattr(a, name).describe()}, dst has {a.dst.shape[0]} partitions",
    )


_MAXIMUM_RULES = [
    operator_rule((MAXIMUM,)),
    command_rule(reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce),
    result_rule("dst"),
    no_indirection(),
]


def _store_with_maximum(a: Any, x: Arrays, values: Any) -> None:
    partitions = a.dst.shape[0]
    accumulate(x, a.reduce_cmd, MAXIMUM, values, partitions)
    x.store(a.dst, values)
    if a.reduce_res is not None:
        x.store(a.reduce_res, held(x, partitions))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    feature="range_select",
    rules=[
        same_elements("dst", "on_true_tile"),
        _bound_rule("bound0"),
        _bound_rule("bound1"),
        Rule(
            "comparison",
            "comp_op0 and comp_op1 are nl.equal, nl.less, nl.less_equal, nl.greater or nl.greater_equal",
            lambda a, t: a.comp_op0 in _RANGE_OPS and a.comp_op1 in _RANGE_OPS,
            _ISA,
            "use one of these comparisons",
            lambda a, t: f"comp_op0 is nl.{a.comp_op0}, comp_op1 is nl.{a.comp_op1}",
        ),
        Rule(
            "on-false-value",
            "on_false_value is the smallest finite float32, -3.4028235e38",
            # anything that rounds to it in float32, whose neighbours there are 2**104 apart
            lambda a, t: abs(a.on_false_value - FP32_MIN) < 2.0**103,
            _ISA,
            "omit on_false_value, or use nisa.affine_select or nisa.select_reduce for other values",
            lambda a, t: f"on_false_value is {a.on_false_value!r}",
        ),
        *_MAXIMUM_RULES,
        Rule(
            "index-range",
            "range_start and the last index are within 2**24, where float32 holds every integer",
            lambda a, t: abs(a.range_start) <= _EXACT_FP32 and a.range_start + a.dst.free_size - 1 <= _EXACT_FP32,
            _ISA,
            "subtract range_start from the bounds instead",
            lambda a, t: f"indices run from {a.range_start} to {a.range_start + a.dst.free_size - 1}",
            severity="warning",
        ),
        Rule(
            "reduce-res-dtype",
            "reduce_res is float32 if dst is a smaller float, in which the value of unselected elements becomes -inf",
            lambda a, t: (
                a.reduce_res is None
                or a.reduce_res.dtype == float32
                or not (a.dst.dtype.is_float and a.dst.dtype.itemsize < float32.itemsize)
            ),
            f"{_ISA} range_select, note on numerical stability",
            "allocate reduce_res as float32: -inf minus -inf is NaN in the exponential that usually follows",
            lambda a, t: f"dst is {a.dst.dtype}, reduce_res is {a.reduce_res.dtype}",
            severity="warning",
        ),
    ],
    steps=streams("RangeSelect", "on_true_tile", "dst", source="", estimate=OLDER),
    effects=("accumulator",),
)
def range_select(
    dst: _NumericDst,
    on_true_tile: Annotated[NkiTensor, source(dtypes=_FLOATS)],
    comp_op0: Op,
    comp_op1: Op,
    bound0: _Bound,
    bound1: _Bound,
    reduce_cmd: Command = reduce_cmd.reset_reduce,
    reduce_res: Annotated[NkiTensor | None, out(ON_CHIP, _NUMERIC)] = None,
    reduce_op: Op = MAXIMUM,
    range_start: Int = 0,
    on_false_value: Number = FP32_MIN,
    name: Name = None,
) -> None:
    """Keep the elements whose position lies between two bounds, and reduce the result to its maximum; on Vector.

    With ``i`` the position of an element in its flattened free dimensions plus `range_start`, ``dst = on_true_tile``
    where ``comp_op0(i, bound0)`` and ``comp_op1(i, bound1)`` hold, else the smallest finite float32. Comparisons are
    float32. In a 16-bit or 8-bit `dst` that value rounds to -inf; the maximum is taken before rounding, so a float32
    `reduce_res` keeps it finite. NaN that is selected makes the maximum NaN.

    The maximum goes to the accumulator registers of Vector, which all its reducing instructions share: ``reset_reduce``
    starts from -inf, ``reduce`` goes on from what they hold, ``reset`` only sets them to -inf. After ``idle`` their
    content is undefined, so that a ``reduce`` right after it is reported.

    Args:
        dst, on_true_tile: SBUF or PSUM, the same partitions and elements per partition; on_true_tile is a float.
        comp_op0, comp_op1: nl.equal, nl.less, nl.less_equal, nl.greater or nl.greater_equal.
        bound0, bound1: float32 ``(P, 1)``.
        reduce_res: ``(P, 1)``, gets the registers after the command, and is written after `dst`.
        reduce_op: nl.maximum.
        range_start: added to the positions.
        on_false_value: -3.4028235e38, the only value that the engine knows.
    """


@range_select.body
def _(a: Any, x: Arrays) -> None:
    values = x.load(a.on_true_tile)
    index = x.to_float(x.affine(1, ((1, a.dst.free_size),), a.range_start, 0))
    inside = x.multiply(
        x.compare(a.comp_op0.name, index, x.load(a.bound0)), x.compare(a.comp_op1.name, index, x.load(a.bound1))
    )
    _store_with_maximum(a, x, x.where(inside, values, x.constant(FP32_MIN)))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "predicate", "on_true"),
        not_both_psum("on_true", "predicate"),
        on_partitions_of("dst", "on_false"),
        *_MAXIMUM_RULES,
    ],
    steps=two_inputs("SelectReduce", "on_true", "predicate"),
    effects=("accumulator",),
)
def select_reduce(
    dst: _NumericDst,
    # bool is not in the table of dtypes, but nki/test/test_nki_isa_select_reduce.py passes it
    predicate: Annotated[NkiTensor, source(dtypes=(uint8, int8, uint16, int16, bool_))],
    on_true: Annotated[NkiTensor, source(dtypes=tuple(d for d in _NUMERIC if d not in (tfloat32, int32, uint32)))],
    on_false: Column,
    reduce_res: Annotated[NkiTensor | None, out(ON_CHIP, _FLOATS)] = None,
    reduce_cmd: Command = reduce_cmd.idle,
    reduce_op: Op = MAXIMUM,
    reverse_pred: Flag = False,
    name: Name = None,
) -> None:
    """``dst = on_true`` where `predicate` is not zero, else `on_false`; perhaps with the maximum; on Vector.

    Values pass through float32 and round to the dtype of `dst`; the maximum is taken before. `reverse_pred` swaps the
    two cases. Ranks may differ as long as partitions and elements per partition agree.

    The maximum goes to the accumulator registers of Vector, which all its reducing instructions share: ``reset_reduce``
    starts from -inf, ``reduce`` goes on from what they hold, ``reset`` only sets them to -inf. With ``idle``, the
    default, nothing is reduced, and their content is undefined afterwards, so that a ``reduce`` right after it is
    reported. NaN makes the maximum NaN.

    Args:
        dst: SBUF or PSUM.
        predicate: int8, uint8, int16, uint16 or bool; not in PSUM together with `on_true`.
        on_true: SBUF or PSUM, any dtype but tfloat32, int32, uint32 and packed x4.
        on_false: a number, or a tensor ``(P, 1)``.
        reduce_res: float ``(P, 1)``, gets the registers after the command, and is written after `dst`.
        reduce_op: nl.maximum.
    """


@select_reduce.body
def _(a: Any, x: Arrays) -> None:
    chosen, on_true, on_false = x.load_raw(a.predicate), x.load(a.on_true), x.column(a.on_false)
    values = x.where(chosen, on_false, on_true) if a.reverse_pred else x.where(chosen, on_true, on_false)
    _store_with_maximum(a, x, values)
