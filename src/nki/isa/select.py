"""Index patterns, and selections by position or predicate."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

import numpy as np

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
from nki.isa.alu import COMPARISONS, EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, MAXIMUM
from nki.isa.indirection import no_indirection
from nki.isa.shared import not_both_psum, on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.instruction import instruction
from nki.spec.operand import (
    ON_CHIP,
    SBUF,
    Column,
    Flag,
    Int,
    Name,
    Number,
    Op,
    Operand,
    Pattern,
    SbufDst,
    SbufSrc,
    out,
    source,
)
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_INT32 = (-(1 << 31), (1 << 31) - 1)
_MAX_PAIRS = 4
_EXACT_FP32 = 1 << 24
_RANGE_OPS = (EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL)
# What passes through float32: every dtype of the device but the packed ones.
_NUMERIC: tuple[DType, ...] = tuple(d for d in BY_NAME.values() if d.device and not d.is_packed)
_FLOATS: tuple[DType, ...] = tuple(d for d in _NUMERIC if d.is_float)

_NumericDst = Annotated[NkiTensor, out(ON_CHIP, _NUMERIC)]
_Offset = Annotated[Any, Operand("register_or_int")]
_Bound = Annotated[NkiTensor, source(dtypes=(float32,))]
_Bounds = (float32, int32)


# --- patterns of iota and affine_select


def _counts(a: Any) -> list[int]:
    return [count for _, count in a.pattern]


def _is_int32(a: Any, t: Target) -> bool:
    values = [a.channel_multiplier, *(step for step, _ in a.pattern)]
    if isinstance(a.offset, int):
        values.append(a.offset)
    return all(_INT32[0] <= value <= _INT32[1] for value in values)


_PATTERN_RULES = [
    Rule(
        "pattern-rank",
        f"pattern has at most {_MAX_PAIRS} [step, count] pairs",
        lambda a, t: len(a.pattern) <= _MAX_PAIRS,
        _ISA,
        "merge dimensions, or use several instructions",
        lambda a, t: f"pattern has {len(a.pattern)} pairs",
    ),
    Rule(
        "pattern-size",
        "the counts of pattern are positive, and their product is the number of elements per partition of dst",
        lambda a, t: all(count > 0 for count in _counts(a)) and prod(_counts(a)) == a.dst.free_size,
        _ISA,
        "give pattern and dst the same number of elements per partition",
        lambda a, t: f"pattern has the counts {_counts(a)}, dst has {a.dst.free_size} elements per partition",
    ),
    Rule(
        "int32",
        "offset, channel_multiplier and the steps of pattern are 32-bit integers",
        _is_int32,
        _ISA,
        "use smaller numbers, or add the rest with nisa.tensor_scalar",
        lambda a, t: f"offset is {a.offset}, channel_multiplier {a.channel_multiplier}, pattern {list(a.pattern)}",
    ),
]


def _affine(a: Any, x: Arrays) -> Any:
    return x.affine(a.dst.shape[0], a.pattern, x.read_register(a.offset), a.channel_multiplier)


@instruction(engines=(Engine.gpsimd,), source=_ISA, rules=[*_PATTERN_RULES, no_indirection()])
def iota(
    dst: Annotated[NkiTensor, out(SBUF, _NUMERIC)],
    pattern: Pattern,
    offset: _Offset = 0,
    channel_multiplier: Int = 0,
    name: Name = None,
) -> None:
    """``dst[p, i, j, ...] = offset + p * channel_multiplier + i * step0 + j * step1 + ...`` on GpSimd.

    ``p`` counts from 0 within `dst`. The sum is 32-bit integer arithmetic, which wraps. An int32 or uint32 `dst` gets
    its bits; any other dtype gets the value by way of float32, as all casts do.

    Args:
        dst: SBUF, any dtype but packed x4. Its free shape is free, its elements per partition are those of `pattern`.
        pattern: up to four ``[step, count]`` pairs, the last one runs fastest.
        offset: int32, or a register.
        channel_multiplier: int32.
    """


@iota.body
def _(a: Any, x: Arrays) -> None:
    values = _affine(a, x)
    if a.dst.dtype in (int32, uint32):
        x.store_raw(a.dst, x.integer("add", values, 0, a.dst.dtype))
    else:
        x.store(a.dst, x.to_float(values))


@instruction(
    moves_bits=True,
    engines=(Engine.gpsimd,),
    source=_ISA,
    rules=[
        *_PATTERN_RULES,
        same_elements("dst", "on_true_tile"),
        no_indirection(),
        Rule(
            "cmp-op",
            "cmp_op is a comparison",
            lambda a, t: a.cmp_op in COMPARISONS,
            _ISA,
            "use nl.equal, nl.not_equal, nl.greater, nl.greater_equal, nl.less or nl.less_equal",
            lambda a, t: f"cmp_op is nl.{a.cmp_op}",
        ),
        Rule(
            "packed",
            "packed x4 tiles are selected without a cast, and the other value is 0",
            lambda a, t: (
                not (a.dst.dtype.is_packed or a.on_true_tile.dtype.is_packed)
                or (a.dst.dtype == a.on_true_tile.dtype and a.on_false_value == 0)
            ),
            _ISA,
            "give both tiles the same dtype and pass on_false_value=0.0",
            lambda a, t: (
                f"dst is {a.dst.dtype}, on_true_tile is {a.on_true_tile.dtype}, on_false_value is {a.on_false_value}"
            ),
        ),
    ],
)
def affine_select(
    dst: SbufDst,
    pattern: Pattern,
    channel_multiplier: Int,
    on_true_tile: SbufSrc,
    on_false_value: Number,
    cmp_op: Op = EQUAL,
    offset: _Offset = 0,
    name: Name = None,
) -> None:
    """``dst = on_true_tile`` where ``cmp_op(affine value, 0)`` holds, else `on_false_value`; on GpSimd.

    The affine value is that of `iota`: ``offset + p * channel_multiplier + sum(index * step)`` in 32-bit integers. A
    causal mask is ``pattern=[[-1, keys]], channel_multiplier=1, offset=first query - first key,
    cmp_op=nl.greater_equal``.

    Args:
        dst, on_true_tile: SBUF, the same partitions and elements per partition. With equal dtypes the bits are copied,
            with different ones the values pass through float32.
        pattern: up to four ``[step, count]`` pairs, the last one runs fastest.
        channel_multiplier: int32.
        on_false_value: a number; it is a float32 that rounds to the dtype of `dst`.
        cmp_op: comparison of the affine value with 0.
        offset: int32, or a register.
    """


@affine_select.body
def _(a: Any, x: Arrays) -> None:
    chosen = x.integer(a.cmp_op.name, _affine(a, x), 0, int32)
    if a.dst.dtype == a.on_true_tile.dtype:
        x.store_raw(a.dst, x.where(chosen, x.load_raw(a.on_true_tile), x.rounded(float(a.on_false_value), a.dst.dtype)))
    else:
        x.store(a.dst, x.where(chosen, x.load(a.on_true_tile), x.constant(a.on_false_value)))


# --- selections that keep a running maximum in the accumulator registers of Vector


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


# --- segments


@instruction(
    engines=(Engine.gpsimd,),
    source=_ISA,
    rules=[
        Rule(
            "partitions",
            "dst and segment_ids have one partition",
            lambda a, t: a.dst.shape[0] == 1 and a.segment_ids.shape[0] == 1,
            _ISA,
            "use one instruction per sequence of ids",
            lambda a, t: f"dst has {a.dst.shape[0]} partitions, segment_ids has {a.segment_ids.shape[0]}",
        ),
        Rule(
            "size",
            "dst holds two values per id: shape (1, 2, n) for n ids",
            lambda a, t: a.dst.free_size == 2 * a.segment_ids.free_size,
            _ISA,
            "allocate dst as (1, 2, n)",
            lambda a, t: f"dst is {list(a.dst.shape)}, segment_ids is {list(a.segment_ids.shape)}",
        ),
        no_indirection(),
    ],
)
def sequence_bounds(
    dst: Annotated[NkiTensor, out(SBUF, _Bounds)],
    segment_ids: Annotated[NkiTensor, source(SBUF, _Bounds)],
    name: Name = None,
) -> None:
    """Where the run of equal ids around every element begins, and where it ends (exclusive); on GpSimd.

    ``dst[0, 0, i]`` is the first position of the run of element i, ``dst[0, 1, i]`` the position after its last one. A
    run ends where the neighbour has another id, so one id may have several runs. Id 0 is padding: its bounds are n and
    -1. Ids are non-negative integers.

    Args:
        dst: SBUF ``(1, 2, n)``, float32 or int32.
        segment_ids: SBUF ``(1, n)``, float32 or int32.
    """


@sequence_bounds.body
def _(a: Any, x: Arrays) -> None:
    ids = x.load_raw(a.segment_ids)[0]
    count = ids.size
    position = np.arange(count)
    differs = ids[1:] != ids[:-1]
    starts = np.maximum.accumulate(np.where(np.concatenate(([True], differs)), position, 0))
    ends = np.where(np.concatenate((differs, [True])), position + 1, count)
    ends = np.minimum.accumulate(ends[::-1])[::-1]
    padding = ids == 0
    bounds = np.concatenate((np.where(padding, count, starts), np.where(padding, -1, ends)))
    x.store(a.dst, x.to_float(bounds[None, :]))
