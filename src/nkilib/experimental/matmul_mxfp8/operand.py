"""An operand of an MX product: quantized already, or quantized piece by piece as it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, X4, Piece, groups, loaded, quantized
from nkilib.streaming import sbuf, size


@dataclass(frozen=True)
class Operand:
    """A matrix (F, K) in HBM.

    Attributes:
        tensor: (F, K), swizzled (K / 4, F * 4), or packed (K / 4, F).
        scales: of numbers that are quantized already, (K / 4, F) or packed into 128 rows for every 2048 of K; or None.
        swizzled: whether numbers that are not quantized are swizzled.
        dtype: float8_e4m3fn or float8_e5m2, to which numbers are quantized.
    """

    tensor: Any
    scales: Any
    swizzled: bool
    dtype: Any

    @property
    def features(self) -> int:
        """F."""
        rows, columns = self.tensor.shape
        if self.scales is None and not self.swizzled:
            return int(rows)
        return int(columns if self.tensor.dtype.is_packed else columns // PACK)

    @property
    def depth(self) -> int:
        """K."""
        rows, columns = self.tensor.shape
        return int(columns if self.scales is None and not self.swizzled else rows * PACK)

    @property
    def packed_scales(self) -> bool:
        """Whether scales of four tiles share 128 rows."""
        return self.scales is not None and self.scales.shape[0] == groups(self.depth) * 128

    def piece(self, columns: slice, piece: Piece) -> tuple[Any, Any]:
        """Packed numbers (rows, columns) of a piece in SBUF, and their scales."""
        if self.scales is not None:
            return self._packed(columns, piece), self._scales(columns, piece)
        wide = slice(columns.start * PACK, columns.stop * PACK)
        if self.swizzled:
            values = streaming.load(self.tensor[piece.data_rows, wide])
        else:
            values = loaded(self.tensor, columns, piece)
        scales = sbuf((piece.rows, size(columns)), nl.uint8)
        return quantized(values, self.dtype, scales), scales[0 : piece.rows - 28, :]

    def _packed(self, columns: slice, piece: Piece) -> Any:
        if self.tensor.dtype.is_packed:
            return streaming.load(self.tensor[piece.data_rows, columns])
        return streaming.load(self.tensor.view(X4[self.tensor.dtype])[piece.data_rows, columns])

    def _scales(self, columns: slice, piece: Piece) -> Any:
        first = piece.group * 128 + piece.scale_row if self.packed_scales else piece.data_rows.start
        return self._rows(columns, first, piece.rows, piece.scale_row % 32 if self.packed_scales else 0)

    def _rows(self, columns: slice, first: int, rows: int, offset: int) -> Any:
        """Scales of a piece in rows of SBUF that begin as far into a quadrant as in HBM."""
        tile = sbuf((rows, size(columns)), self.scales.dtype)
        for quadrant in range(0, rows, 32):
            source = self.scales[first + quadrant : first + quadrant + 4, columns]
            streaming.copy(tile[quadrant + offset : quadrant + offset + 4, :], source)
        return tile[offset : offset + rows - 28, :]


def checked(name: str, tensor: Any, scales: Any, swizzled: bool, by_features: bool, dtype: Any) -> Operand:
    """An operand of arguments of these names.

    Raises:
        KernelLimit: it is none.
    """
    data, found = (tensor[0], tensor[1]) if isinstance(tensor, (tuple, list)) else (tensor, scales)
    operand = Operand(data, found, swizzled, dtype)
    if found is None:
        limits.dtype(name, data, (nl.bfloat16, nl.float16))
        limits.not_built({f"{name}_is_f_by_k": None if swizzled or by_features else by_features}, "matmul_mxfp8")
    else:
        limits.dtype(name, data, (*X4, *X4.values()))
        limits.dtype(f"{name}_scales", found, (nl.uint8, nl.float8_e8m0fnu))
        wanted = (groups(operand.depth) * 128 if operand.packed_scales else operand.depth // PACK, operand.features)
        limits.shape(f"{name}_scales", found, wanted)
    limits.multiple(f"K of {name}", operand.depth, 128, "a quadrant of 32 rows has four numbers of K in each row")
    return operand
