"""Index patterns: iota, and selection by position."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from nki.core.dtypes import (
    BY_NAME,
    DType,
    int32,
    uint32,
)
from nki.core.nki_tensor import NkiTensor
from nki.isa.alu import COMPARISONS, EQUAL
from nki.isa.indirection import no_indirection
from nki.isa.shared import same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import OLDER, streams
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import (
    SBUF,
    Int,
    Name,
    Number,
    Op,
    Operand,
    Pattern,
    SbufDst,
    SbufSrc,
    out,
)
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_INT32 = (-(1 << 31), (1 << 31) - 1)
_MAX_PAIRS = 4
# What passes through float32: every dtype of the device but the packed ones.
_NUMERIC: tuple[DType, ...] = tuple(d for d in BY_NAME.values() if d.device and not d.is_packed)

_Offset = Annotated[Any, Operand("register_or_int")]


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


@instruction(
    engines=(Engine.gpsimd,),
    source=_ISA,
    rules=[*_PATTERN_RULES, no_indirection()],
    steps=streams("Iota", "dst", source="", estimate=OLDER),
)
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
    steps=streams("AffineSelect", "dst", "on_true_tile", source="", estimate=OLDER),
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
