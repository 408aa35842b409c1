"""Rows that are normalised, if wanted, and quantised to 8-bit floats::

    h        = hidden * pre_norm_gamma / rms(hidden) + residual          each part only if it is there
    n        = h * ln_w / rms(h)                                         or n = h
    ROW:     scale = max(min(max|n|, bound) / largest, 1e-6)             one for each row
             out = clip(n, -bound, bound) / scale, and the 4 bytes of the scale behind it
    STATIC:  out = clip(n / input_dequant_scale, -largest, largest)

with ``rms(x) = sqrt(mean(x**2) + eps)``, and 240 or 448 as the largest number of the format.

Layouts: any number of dimensions; all but the last are rows. Dtypes: bfloat16, float16 or float32 to float8_e4m3 or
float8_e4m3fn; factors and scales are float32, ``h * ln_w`` rounds to the dtype of `hidden`. Limits: rows of at most
32,768 elements.

Plan: the factor of a row cancels between a number and its scale, so the largest product with `ln_w` is enough: GpSimd
multiplies, Vector finds the largest, Scalar sums up squares, and Scalar and Vector share the last multiplication. The
bytes of the scale are copied behind the row in SBUF, so that a block is one store. Vector bounds the kernel, closely
followed by transfers.

Source: nki/library/specs/design-rmsnorm-quant.rst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.rmsnorm.rms_norm import checked, inverse_rms, load_factors, scale_rows, times_columns
from nkilib.core.utils.common_types import DtypeMode, NormType, QuantizationType
from nkilib.fp8 import float8, largest
from nkilib.rows import Pieces, RowBlock, matrix, row_blocks
from nkilib.streaming import filled, load, result, sbuf, store

_SCALE_BYTES = 4
_LEAST_SCALE = 1e-6
_LEAST_BOUND = 1e-6
"""A smaller bound is none."""
_LONGEST = 32_768


@dataclass(frozen=True)
class RmsNormQuantKernelArgs(nl.NKIObject):
    """What `rmsnorm_quant_kernel` computes.

    Attributes:
        lower_bound: with ROW, numbers are clipped to this magnitude; 0 for no bound.
        norm_type: RMS_NORM or NO_NORM.
        quantization_type: ROW or STATIC.
        eps: added to the mean of the squares.

    Raises:
        KernelLimit: another norm or quantisation (``nkilib.option``), a negative number (``nkilib.argument``).
    """

    lower_bound: float = 0.0
    norm_type: NormType = NormType.RMS_NORM
    quantization_type: QuantizationType = QuantizationType.ROW
    eps: float = 1e-6

    def __post_init__(self) -> None:
        limits.one_of("norm_type", self.norm_type, (NormType.RMS_NORM, NormType.NO_NORM))
        limits.one_of("quantization_type", self.quantization_type, (QuantizationType.ROW, QuantizationType.STATIC))
        for name in ("lower_bound", "eps"):
            value = getattr(self, name)
            limits.need(value >= 0, name, value, f"{name} is not negative", "pass 0 or more")

    def needs_rms_normalization(self) -> bool:
        """Whether rows are normalised."""
        return self.norm_type is NormType.RMS_NORM

    def has_lower_bound(self) -> bool:
        """Whether numbers are clipped."""
        return self.lower_bound > _LEAST_BOUND

    def is_row_quant(self) -> bool:
        """Whether each row has a scale of its own."""
        return self.quantization_type is QuantizationType.ROW

    def is_static_quant(self) -> bool:
        """Whether one scale is known beforehand."""
        return self.quantization_type is QuantizationType.STATIC


@nki.jit
def rmsnorm_quant_kernel(
    hidden: nl.NkiTensor,
    ln_w: nl.NkiTensor | None,
    kargs: RmsNormQuantKernelArgs,
    input_dequant_scale: nl.NkiTensor | None = None,
    pre_norm_gamma: nl.NkiTensor | None = None,
    residual: nl.NkiTensor | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> nl.NkiTensor | tuple[nl.NkiTensor, nl.NkiTensor]:
    """Normalise and quantise rows; the cores of the launch divide them.

    Args:
        hidden: (..., H) in HBM, at least two dimensions.
        ln_w: (H,) or (1, H), factors of the norm; without a norm it is not read, and may be None.
        kargs: which norm and quantisation.
        input_dequant_scale: (128, 1) float32, one number 128 times; with STATIC only.
        pre_norm_gamma: (H,) or (1, H), factors of a norm of `hidden` before anything else.
        residual: like `hidden`, added before the norm.
        dtype_mode: OCP for float8_e4m3fn (NeuronCore-v4), NON_OCP for float8_e4m3, AUTO for the target's.

    Returns:
        (..., H + 4) with ROW, the last four being the bytes of the row's scale as float32, or (..., H) with STATIC.
        With `residual` a pair: this, and the sum that was normalised, like `hidden`.

    Raises:
        KernelLimit: shapes, dtypes, a scale that is missing or not wanted, OCP on a target without it.
    """
    limits.one_of("dtype_mode", dtype_mode, tuple(DtypeMode))
    dtype = float8(dtype_mode)
    _check(hidden, ln_w, kargs, input_dequant_scale, pre_norm_gamma, residual)
    columns = hidden.shape[-1]
    wide = columns + (_SCALE_BYTES if kargs.is_row_quant() else 0)
    out = result((*hidden.shape[:-1], wide), dtype)
    summed = None if residual is None else result(hidden.shape, hidden.dtype)
    work = _Work(kargs, matrix(hidden), ln_w, pre_norm_gamma, input_dequant_scale, largest(dtype))
    for block in row_blocks(work.source.shape[0], columns * hidden.dtype.itemsize):
        rows = work.rows(block, residual, summed)
        store(block.of(matrix(out)), work.quantised(rows, dtype, wide))
    return out if summed is None else (out, summed)


def _check(hidden: Any, ln_w: Any, kargs: RmsNormQuantKernelArgs, scale: Any, pre_norm: Any, residual: Any) -> None:
    limits.need(
        len(hidden.shape) >= 2,
        "hidden",
        list(hidden.shape),
        "hidden has two dimensions or more",
        "reshape it to (1, H)",
    )
    limits.between("H", hidden.shape[-1], 1, _LONGEST, "a quantised row lies in SBUF")
    normed = kargs.needs_rms_normalization()
    limits.need(
        not normed or ln_w is not None, "ln_w", ln_w, "a norm has factors", "pass ln_w, or NormType.NO_NORM in kargs"
    )
    checked(hidden, kargs.eps, ln_w=ln_w if normed else None, pre_norm_gamma=pre_norm)
    if residual is not None:
        limits.shape("residual", residual, hidden.shape)
        limits.same_dtype(hidden=hidden, residual=residual)
    static = kargs.is_static_quant()
    limits.need(
        static == (scale is not None),
        "input_dequant_scale",
        "None" if scale is None else list(scale.shape),
        rule="a scale is passed with STATIC, and found with ROW",
        fix="pass input_dequant_scale" if static else "leave input_dequant_scale out, or pass STATIC in kargs",
    )
    if scale is not None:
        limits.shape("input_dequant_scale", scale, (nl.tile_size.pmax, 1))
        limits.dtype("input_dequant_scale", scale, (nl.float32,))


class _Work(nl.NKIObject):
    """What all blocks of rows share."""

    def __init__(
        self, kargs: RmsNormQuantKernelArgs, source: Any, ln_w: Any, pre_norm: Any, dequant: Any, most: float
    ) -> None:
        self.kargs, self.source, self.largest = kargs, source, most
        self.epsilon = filled((nl.tile_size.pmax, 1), nl.float32, kargs.eps)
        self.factors = load_factors(ln_w if kargs.needs_rms_normalization() else None, source)
        self.pre_factors = None if pre_norm is None else load_factors(pre_norm, source)
        self.static_scale: Any = None if dequant is None else _inverse(load(dequant))

    def rows(self, block: RowBlock, residual: Any, summed: Any) -> Pieces:
        """Rows of `hidden` after the first norm and the sum, which goes to `summed`."""
        pieces = Pieces(block, self.source)
        if self.pre_factors is None and residual is None:
            return pieces
        inverse = None if self.pre_factors is None else inverse_rms(pieces, self.epsilon)
        tiles = []
        for place, (part, tile) in enumerate(pieces):
            if self.pre_factors is not None:
                normal = sbuf(tile.shape, tile.dtype if residual is None else nl.float32)
                scale_rows(tile, inverse, self.pre_factors[place], into=normal)
                tile = normal
            if residual is not None:
                tile = _sum(tile, load(block.of(matrix(residual)[:, part])))
                store(block.of(matrix(summed)[:, part]), tile)
            tiles.append(tile)
        return Pieces(block, self.source, tiles)

    def quantised(self, rows: Pieces, dtype: Any, wide: int) -> Any:
        """Rows in the 8-bit format, with ROW their scales behind them: (partitions, rows of each, wide)."""
        normed = self.kargs.needs_rms_normalization()
        factor = inverse_rms(rows, self.epsilon) if normed else None
        weighted = [times_columns(tile, of, into=tile) for (_, tile), of in zip(rows, self.factors, strict=True)]
        out = sbuf((rows.block.partitions, rows.block.each, wide), dtype)
        if self.static_scale is not None:
            self._by_scale(rows, weighted, factor, out)
        else:
            self._by_row(rows, weighted, factor, out)
        return out

    def _by_row(self, rows: Pieces, weighted: list[Any], factor: Any, out: Any) -> None:
        scale = _largest(weighted)
        if factor is not None:
            nisa.tensor_tensor(dst=scale, data1=scale, data2=factor, op=nl.multiply)
        if self.kargs.has_lower_bound():
            bound = self.kargs.lower_bound
            nisa.tensor_scalar(dst=scale, data=scale, op0=nl.minimum, operand0=bound)
            weighted = [_clipped(tile, bound, factor) for tile in weighted]
        nisa.tensor_scalar(
            dst=scale,
            data=scale,
            op0=nl.multiply,
            operand0=1.0 / self.largest,
            op1=nl.maximum,
            operand1=_LEAST_SCALE,
        )
        columns = self.source.shape[1]
        nisa.tensor_copy(dst=out[:, :, columns:], src=scale.view(out.dtype).reshape((*scale.shape, _SCALE_BYTES)))
        inverse = _inverse(scale)
        if factor is not None:
            nisa.tensor_tensor(dst=inverse, data1=inverse, data2=factor, op=nl.multiply)
        turn = rows.block.start // rows.block.partitions  # Scalar and Vector take turns, also from block to block
        for place, (part, tile) in enumerate(zip(rows.parts, weighted, strict=True)):
            for row in range(tile.shape[1]):
                engine = nisa.engine.scalar if (turn + place + row) % 2 == 0 else nisa.engine.vector
                into, by = out[:, row, part], inverse[:, row : row + 1]
                nisa.tensor_scalar(dst=into, data=tile[:, row], op0=nl.multiply, operand0=by, engine=engine)

    def _by_scale(self, rows: Pieces, weighted: list[Any], factor: Any, out: Any) -> None:
        scale = self.static_scale[: rows.block.partitions].broadcast(1, rows.block.each)
        if factor is not None:
            product = sbuf(factor.shape, nl.float32)
            nisa.tensor_tensor(dst=product, data1=factor, data2=scale, op=nl.multiply)
            scale = product
        for part, tile in zip(rows.parts, weighted, strict=True):
            for row in range(tile.shape[1]):
                below = sbuf((tile.shape[0], tile.shape[2]), nl.float32)
                nisa.tensor_scalar(
                    dst=below,
                    data=tile[:, row],
                    op0=nl.multiply,
                    operand0=scale[:, row : row + 1],
                    op1=nl.minimum,
                    operand1=self.largest,
                )
                nisa.tensor_scalar(dst=out[:, row, part], data=below, op0=nl.maximum, operand0=-self.largest)


def _inverse(tile: Any) -> Any:
    inverse = sbuf(tile.shape, nl.float32)
    nisa.reciprocal(dst=inverse, data=tile)
    return inverse


def _sum(tile: Any, other: Any) -> Any:
    total = sbuf(other.shape, other.dtype)
    nisa.tensor_tensor(dst=total, data1=tile, data2=other, op=nl.add, engine=nisa.engine.gpsimd)
    return total


def _largest(tiles: list[Any]) -> Any:
    """The largest magnitude of every row: (partitions, rows of each) in float32."""
    partitions, rows, _ = tiles[0].shape
    found, total = sbuf((partitions, rows, len(tiles)), nl.float32), sbuf((partitions, rows), nl.float32)
    for place, tile in enumerate(tiles):
        unused = sbuf((partitions, tile.shape[2]), nl.bfloat16)
        for row in range(rows):
            nisa.tensor_scalar_reduce(
                dst=unused,
                data=tile[:, row],
                op0=nl.abs,
                operand0=0.0,
                reduce_op=nl.maximum,
                reduce_res=found[:, row, place : place + 1],
            )
    nisa.tensor_reduce(dst=total, op=nl.maximum, data=found, axis=[2])
    return total


def _clipped(tile: Any, bound: float, factor: Any) -> Any:
    """A tile whose product with the factors of its rows has at most a magnitude."""
    clipped = sbuf(tile.shape, tile.dtype)
    most, least = sbuf(tile.shape[:2], nl.float32), sbuf(tile.shape[:2], nl.float32)
    if factor is None:
        nisa.memset(dst=most, value=bound)
    else:
        nisa.tensor_scalar(dst=most, data=_inverse(factor), op0=nl.multiply, operand0=bound)
    nisa.tensor_scalar(dst=least, data=most, op0=nl.multiply, operand0=-1.0)
    for row in range(tile.shape[1]):
        up, down = most[:, row : row + 1], least[:, row : row + 1]
        clip = {"op0": nl.minimum, "operand0": up, "op1": nl.maximum, "operand1": down}
        nisa.tensor_scalar(dst=clipped[:, row], data=tile[:, row], **clip)
    return clipped
