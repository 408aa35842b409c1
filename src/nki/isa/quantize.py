"""Microscaling (MX) quantization, and where the scales of MX tensors lie."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.access import slice_dim
from nki.core.dtypes import (
    bfloat16,
    float8_e4m3fn_x4,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    uint8,
)
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import FreeIndirection, View
from nki.isa.alu import MAXIMUM
from nki.spec.arrays import Arrays
from nki.spec.cost_vector import QUANTIZE_MX
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import SBUF, Name, Operand, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa quantize_mx"
_NOTES = "release-notes/components/nki.rst, NKI 0.5.0, improvements"
_LAYOUT = "nki/deep-dives/mxfp-matmul.rst, Packing Scale Values"
_OFFSETS = (0, 4, 8, 12)  # first scale row inside a quadrant
_LARGEST_EXPONENT = {float8_e4m3fn_x4: 8, float8_e5m2_x4: 15}
_BIAS = 127  # of the exponent that a scale byte holds
_LARGEST_BYTE = 254  # 255 is NaN

SCALES = (float8_e8m0fnu, uint8)
"""Dtypes of scale tensors; a byte b means 2**(b - 127), 255 NaN."""


def fixed_start(view: View, t: Target) -> int | None:
    """First partition of a view if no allocator can change it: explicit address, or too high to start elsewhere."""
    fixed = view.buffer.address is not None or t.access.start_partitions(view.buffer.partitions) == (0,)
    return view.start_partition if fixed else None


def rows_per_quadrant(t: Target) -> int:
    """Scale rows that belong to one quadrant of data."""
    return t.quadrant // t.pe.mx_group_partitions


def scale_parts(scale: View, data: View, t: Target) -> list[View]:
    """The rows of a scale tensor that belong to the quadrants of its data; others are not touched."""
    if isinstance(scale.dynamic, FreeIndirection):
        return [scale]
    return [slice_dim(scale, 0, first, first + rows_per_quadrant(t)) for first in range(0, data.partitions, t.quadrant)]


def scale_rules(scale: str, data: str) -> list[Rule]:
    """What the scale operand of an MX tensor must satisfy: size, place inside the quadrant, and quadrant."""

    def rows(a: Any, t: Target) -> int:
        return getattr(a, data).partitions - t.quadrant + rows_per_quadrant(t)

    def sized(a: Any, t: Target) -> bool:
        found, values = getattr(a, scale), getattr(a, data)
        return found.partitions >= rows(a, t) and found.free_size == values.free_size

    def same_quadrant(a: Any, t: Target) -> bool:
        starts = [fixed_start(getattr(a, name), t) for name in (scale, data)]
        return None in starts or len({start // t.quadrant for start in starts if start is not None}) == 1

    label = scale.replace("_", "-")
    return [
        Rule(
            f"{label}-shape",
            f"{scale} has one element per column of {data}, and rows up to the last quadrant's scales: "
            "{t.pe.mx_group_partitions} partitions of data share one, and each quadrant keeps its own",
            sized,
            _LAYOUT,
            f"allocate {scale} with the partitions of {data}, and slice it to the columns of {data}",
            lambda a, t: (
                f"{scale} is {getattr(a, scale).partitions} x {getattr(a, scale).free_size}, {data} is "
                f"{getattr(a, data).partitions} x {getattr(a, data).free_size} and needs {rows(a, t)} rows of scales"
            ),
        ),
        Rule(
            f"{label}-offset",
            f"{scale} starts at row {', '.join(map(str, _OFFSETS))} of a quadrant",
            lambda a, t: getattr(a, scale).start_partition % t.quadrant in _OFFSETS,
            _LAYOUT,
            f"start the slice of {scale} at one of these rows",
            lambda a, t: f"{scale} starts at partition {getattr(a, scale).start_partition}",
        ),
        Rule(
            f"{label}-quadrant",
            f"{scale} lies in the quadrants of {data}",
            same_quadrant,
            _LAYOUT,
            f"start {scale} in the quadrant where {data} starts",
            lambda a, t: (
                f"{scale} starts at partition {getattr(a, scale).start_partition}, "
                f"{data} at {getattr(a, data).start_partition}"
            ),
        ),
    ]


_Packed = Annotated[NkiTensor, out(SBUF, (float8_e4m3fn_x4, float8_e5m2_x4))]
_Values = Annotated[NkiTensor, source(SBUF, (bfloat16, float16))]
_Scale = Annotated[
    NkiTensor,
    Operand(
        "tensor",
        writes=True,
        regions=SBUF,
        dtypes=SCALES,
        engine_access=False,
        parts=lambda a, t: scale_parts(a.dst_scale, a.src, t),
    ),
]

_RULES = [
    Rule(
        "partitions",
        "the partitions of src are a multiple of {t.quadrant}",
        lambda a, t: a.src.partitions % t.quadrant == 0,
        _ISA,
        "pad src to a multiple of {t.quadrant} partitions",
        lambda a, t: f"src has {a.src.partitions} partitions",
    ),
    Rule(
        "src-size",
        "src has a multiple of {t.pe.mx_pack} elements per partition",
        lambda a, t: a.src.free_size % t.pe.mx_pack == 0,
        _ISA,
        "pad src to a multiple of {t.pe.mx_pack} elements",
        lambda a, t: f"src has {a.src.free_size} elements per partition",
    ),
    Rule(
        "dst-shape",
        "dst has the partitions of src, and one element for {t.pe.mx_pack} of src",
        lambda a, t: a.dst.partitions == a.src.partitions and a.dst.free_size == -(-a.src.free_size // t.pe.mx_pack),
        _ISA,
        "allocate dst with a quarter of the elements of src",
        lambda a, t: f"dst is {a.dst.partitions} x {a.dst.free_size}, src is {a.src.partitions} x {a.src.free_size}",
    ),
    *scale_rules("dst_scale", "dst"),
    Rule(
        "indirect",
        "no operand uses tensor indirection",
        lambda a, t: not any(isinstance(v.dynamic, FreeIndirection) for v in (a.dst, a.src, a.dst_scale)),
        _ISA,
        "copy src to a plain tensor with nisa.tensor_copy first",
    ),
]


@instruction(
    engines=(Engine.vector,), feature="quantize_mx", source=_NOTES, rules=_RULES, public=False, steps=QUANTIZE_MX
)
def quantize_mx_sample(dst: _Packed, src: _Values, dst_scale: _Scale, name: Name = None) -> None:
    """`quantize_mx` as it was before NKI 0.5: the scale is ``2**(floor(log2(amax)) - Emax)``, as in the OCP sample.

    The largest values of a group saturate where they would be rounded up. All else is as in `quantize_mx`.
    """


@quantize_mx_sample.body
def _(a: Any, x: Arrays) -> None:
    _quantize(a, x, _LARGEST_EXPONENT[a.dst.dtype])


@instruction(
    engines=(Engine.vector,),
    feature="quantize_mx",
    source=_ISA,
    rules=_RULES,
    steps=QUANTIZE_MX,
    before=("0.5", quantize_mx_sample),
)
def quantize_mx(dst: _Packed, src: _Values, dst_scale: _Scale, name: Name = None) -> None:
    """Quantize to MXFP8: packed values in `dst`, one power-of-two scale per 8 partitions x 4 elements in `dst_scale`.

    The scale of a group with the largest magnitude ``amax`` is ``2**(floor(log2(amax)) - (Emax - 1))``; Emax is 8 for
    e4m3fn and 15 for e5m2. That is twice the scale of the sample algorithm of the OCP standard, so that rounding up
    never saturates. It is stored as the exponent plus 127, at least 0; a group of zeros gets 0. Values are divided by
    the scale and rounded to nearest, ties to even. The documents leave infinities and NaN open: here they count as
    exponent 128, NaN stays NaN, infinity becomes the largest value, and the rest of the group shrinks towards zero.

    The scales of each 32 partitions of data are 4 rows, which lie in the quadrant of the data; a scale view that starts
    at row 0, 4, 8 or 12 of a quadrant shares its tensor with up to three others, whose rows are not touched.

    Args:
        dst: SBUF ``(P, F/4)``, float8_e4m3fn_x4 or float8_e5m2_x4.
        src: SBUF ``(P, F)``, bfloat16 or float16; P a multiple of 32, F of 4.
        dst_scale: SBUF, float8_e8m0fnu or uint8, F/4 elements per row; 4 rows for 32 partitions, else row
            ``32q + j`` holds group ``4q + j``.
    """


@quantize_mx.body
def _(a: Any, x: Arrays) -> None:
    _quantize(a, x, _LARGEST_EXPONENT[a.dst.dtype] - 1)


def _quantize(a: Any, x: Arrays, highest: int) -> None:
    """Quantize; the largest values of a group are scaled to the exponent `highest`."""
    t = x.target
    values = x.load(a.src)
    largest = _largest_exponent(x, x.exponent(values), a.src)
    wanted = x.add(largest, x.constant(_BIAS - highest))
    scale_bytes = x.minimum(x.maximum(wanted, x.constant(0.0)), x.constant(_LARGEST_BYTE))
    shrink = x.subtract(x.constant(_BIAS), spread_groups(x, scale_bytes))
    packed = x.pack_x4(x.ldexp(values, shrink), a.dst.dtype)
    count = rows_per_quadrant(t)
    found = [(part, x.rows(scale_bytes, n * count, count)) for n, part in enumerate(scale_parts(a.dst_scale, a.src, t))]
    x.store_raw(a.dst, packed)
    for part, rows in found:
        x.store(part._replace(dtype=uint8), rows)


def _largest_exponent(x: Arrays, exponents: Any, src: View) -> Any:
    """Maximum per group: ``(P, F)`` to ``(P/8, F/4)``."""
    group, pack = x.target.pe.mx_group_partitions, x.target.pe.mx_pack
    partitions, columns = src.partitions, src.free_size // pack
    in_row = x.reduce(MAXIMUM, x.reshape(exponents, (partitions * columns, pack)))
    by_column = x.transpose(x.reshape(in_row, (partitions, columns)))
    in_group = x.reduce(MAXIMUM, x.reshape(by_column, (columns * partitions // group, group)))
    return x.transpose(x.reshape(in_group, (columns, partitions // group)))


def spread_groups(x: Arrays, scales: Any) -> Any:
    """One value per group for each element of the group: ``(G, F)`` to ``(8G, 4F)``."""
    group, pack = x.target.pe.mx_group_partitions, x.target.pe.mx_pack
    return x.transpose(_repeat(x, x.transpose(_repeat(x, scales, pack)), group))


def _repeat(x: Arrays, values: Any, times: int) -> Any:
    """Each element `times` times along the row."""
    rows, columns = values.shape
    single = x.reshape(values, (rows * columns, 1))
    return x.reshape(x.broadcast(single, rows * columns, times), (rows, columns * times))
