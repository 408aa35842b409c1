"""The microscaled (MX) matmul of the Tensor engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Annotated, Any

from nki.core.access import slice_dim
from nki.core.dtypes import bfloat16, float4_e2m1fn_x4, float8_e4m3fn_x4, float8_e5m2_x4, float8_e8m0fnu, float32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.matmul_rules import Accumulate, index_of, indirect_rules, inputs, size_rules, tile_rules
from nki.isa.quantize import SCALES, rows_per_quadrant, scale_parts, scale_rules
from nki.spec.arrays import Arrays
from nki.spec.cost_tensor import MATMUL_MX
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import PSUM, SBUF, Name, Operand, out, source
from nki.spec.rule import Rule

_MX = "nki/api/nki/isa nc_matmul_mx"
_MX_DTYPES = (float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4)
_MxSrc = Annotated[NkiTensor, source(SBUF, _MX_DTYPES)]


def _scale_of(data: str) -> Operand:
    """The scales of a tensor, of which only the rows of its quadrants are read."""
    return Operand(
        "tensor",
        reads=True,
        regions=SBUF,
        dtypes=SCALES,
        engine_access=False,
        parts=lambda a, t: scale_parts(getattr(a, f"{data}_scale"), getattr(a, data), t),
    )


_OptionalPair = Annotated[tuple[int, ...] | None, Operand("ints")]


def _same_index(data: str, scale: str) -> Rule:
    return Rule(
        f"indirect-{data}",
        f"{data} and {scale} use the same index, or none",
        lambda a, t: index_of(getattr(a, data)) == index_of(getattr(a, scale)),
        _MX + ", Tensor indirection",
        "call .indirect(index) on both with the same index",
    )


@instruction(
    engines=(Engine.tensor,),
    feature="nc_matmul_mx",
    source=_MX,
    rules=[
        Rule(
            "partitions",
            "stationary and moving have a multiple of {t.quadrant} partitions",
            lambda a, t: a.stationary.partitions % t.quadrant == 0,
            _MX + ", Tile size",
            "pad the contraction to a multiple of {t.quadrant} partitions",
            lambda a, t: inputs(a),
        ),
        Rule(
            "stationary-even",
            "stationary has an even number of columns",
            lambda a, t: a.stationary.free_size % 2 == 0,
            _MX + ", Tile size",
            "pad stationary with a column",
            lambda a, t: inputs(a),
        ),
        *size_rules(_MX + ", Tile size"),
        *tile_rules(
            _MX,
            lambda t: (t.pe.columns,),
            "a tile has one of {t.pe.row_tile_sizes} rows and all {t.pe.columns} columns",
        ),
        _same_index("stationary", "stationary_scale"),
        _same_index("moving", "moving_scale"),
        *indirect_rules(_MX),
        *scale_rules("stationary_scale", "stationary"),
        *scale_rules("moving_scale", "moving"),
    ],
    steps=MATMUL_MX,
)
def nc_matmul_mx(
    dst: Annotated[NkiTensor, out(PSUM, (float32, bfloat16))],
    stationary: _MxSrc,
    moving: _MxSrc,
    stationary_scale: Annotated[NkiTensor, _scale_of("stationary")],
    moving_scale: Annotated[NkiTensor, _scale_of("moving")],
    tile_position: _OptionalPair = None,
    tile_size: _OptionalPair = None,
    accumulate: Accumulate = None,
    name: Name = None,
) -> None:
    """Matmul of microscaled (MX) operands: sums over the partitions and the 4 values of each packed element.

    ``dst[m, n] = sum over p and q of stationary[p, m, q] * 2**(ss - 127) * moving[p, n, q] * 2**(ms - 127)``, where
    8 partitions x 4 values share the scale bytes ss and ms; 255 means NaN. All of it is float32. FP8 and FP4 operands
    mix.

    Args:
        dst: PSUM ``(M, N)``, float32 or bfloat16 (rounded at each accumulation).
        stationary, moving: SBUF ``(P, M)`` and ``(P, N)`` of x4 dtypes; P a multiple of 32, M even.
        stationary_scale, moving_scale: float8_e8m0fnu or uint8, laid out as nisa.quantize_mx does; a view may start at
            row 0, 4, 8 or 12 of a quadrant.
        tile_position, tile_size: as in nisa.nc_matmul, with all columns.
        accumulate: as in nisa.nc_matmul.
    """


@nc_matmul_mx.body
def _(a: Any, x: Arrays) -> None:
    size = x.target.quadrant
    products = [
        x.matmul(
            _quadrant(x, a.stationary, a.stationary_scale, first),
            _quadrant(x, a.moving, a.moving_scale, first),
        )
        for first in range(0, a.stationary.partitions, size)
    ]
    x.accumulate(a.dst, reduce(x.add, products), a.accumulate)


def _quadrant(x: Arrays, data: View, scale: View, first: int) -> Any:
    """The values of the quadrant from partition `first`, ``(4 * 32, columns)``."""
    packed = _rows(data, first, x.target.quadrant, x.load_raw, x)
    scales = _rows(scale._replace(dtype=float8_e8m0fnu), first, rows_per_quadrant(x.target), x.load, x)
    return x.dequantize(packed, data.dtype, scales)


def _rows(view: View, first: int, count: int, load: Callable[[View], Any], x: Arrays) -> Any:
    """Rows `first` to ``first + count`` of an operand; no other rows are read, as those of scales may be unwritten."""
    if index_of(view) is not None:
        return x.rows(load(view), first, count)
    return load(slice_dim(view, 0, first, first + count))
