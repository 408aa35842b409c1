"""What happens to the sums of a product on their way from PSUM to SBUF: factors and a bias."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import load_repeated, sbuf

_THIN = 256
"""Depth up to which Vector cannot add a bias as fast as the Tensor engine makes the sums."""


class Repeated:
    """A row of HBM on every partition, loaded strip by strip, each once."""

    def __init__(self, row: Any, dtype: Any = None) -> None:
        self._row, self._dtype = row, dtype
        self._loaded: dict[tuple[int, int], Any] = {}

    def __call__(self, columns: slice, rows: int) -> Any:
        """The columns on `rows` partitions, which are at most as many as the first time."""
        key = (columns.start, columns.stop)
        if key not in self._loaded:
            self._loaded[key] = load_repeated(self._row[:, columns], rows, self._dtype)
        return self._loaded[key][0:rows]


@dataclass
class Epilogue:
    """``sums * scale * factors + bias``, rounded once to `dtype`.

    Attributes:
        dtype: of the result.
        depth, rows: of the stack. A bias is added by the Tensor engine where the product is thin or has few rows, so
            that Scalar and Vector share the rest, and by Vector elsewhere.
        bias: ``(1, n)`` in HBM, or None.
        scale: a number, or a float32 column ``(128, 1)`` in SBUF: one for each row of the sums, all the same.
        factors: float32 ``(1, n)`` in HBM: one for each column of the sums, or None.
        late: whether each call brings a scale of its own, which takes the place of `scale`.
    """

    dtype: Any
    depth: int
    rows: int
    bias: Any = None
    scale: Any = 1.0
    factors: Any = None
    late: bool = False
    _bias: Repeated | None = field(init=False, default=None)
    _factors: Repeated | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.bias is not None and self.begin[0] is None:
            self._bias = Repeated(self.bias)
        if self.factors is not None:
            self._factors = Repeated(self.factors, nl.float32)

    @property
    def begin(self) -> tuple[Any]:
        """`biases` of `nkilib.products.products`."""
        plain = isinstance(self.scale, float) and self.factors is None and not self.late
        return (self.bias if plain and (self.depth <= _THIN or self.rows <= nl.tile_size.pmax) else None,)

    def __call__(self, sums: Any, columns: slice, into: Any = None, scale: Any = None) -> Any:
        """What sums ``(rows, columns)`` in PSUM become, in a tile of SBUF; by default a new one.

        Args:
            scale: with `late`, a float32 column ``(rows, 1)``.
        """
        rows = sums.shape[0]
        if scale is None:
            scale = self.scale if isinstance(self.scale, float) else self.scale[0:rows]
        if self._factors is None and self._bias is None:
            return emptied(sums, self.dtype, scale, into)
        tile = sbuf(sums.shape, self.dtype) if into is None else into
        beside = {"factors": self._factors, "bias": self._bias}
        combine(tile, sums, scale, **{name: row(columns, rows) for name, row in beside.items() if row is not None})
        return tile


def combine(into: Any, sums: Any, scale: Any, factors: Any = None, bias: Any = None) -> None:
    """``into = sums * scale * factors + bias`` on Vector, with factors and bias of the shape of sums, or None."""
    first, operation = (bias, nl.add) if factors is None else (factors, nl.multiply)
    if first is None:
        nisa.tensor_scalar(dst=into, data=sums, op0=nl.multiply, operand0=scale)
        return
    both = factors is not None and bias is not None
    scaled = sbuf(sums.shape, nl.float32) if both else into
    nisa.scalar_tensor_tensor(dst=scaled, data=sums, op0=nl.multiply, operand0=scale, op1=operation, operand1=first)
    if both:
        nisa.tensor_tensor(dst=into, data1=scaled, data2=bias, op=nl.add)


def emptied(sums: Any, dtype: Any, scale: Any = 1.0, into: Any = None) -> Any:
    """Sums ``(rows, columns)`` of PSUM in a tile of SBUF, half of their columns by Scalar, half by Vector.

    Args:
        scale: a number, or a float32 column ``(rows, 1)``, that they are multiplied with.
        into: the tile, by default a new one.
    """
    rows, columns = sums.shape
    bank = nl.tile_size.psum_bank_fmax
    tile = sbuf((rows, columns), dtype) if into is None else into
    half = columns // (2 * bank) * bank
    if half:
        nisa.activation(dst=tile[:, 0:half], op=nl.copy, data=sums[:, 0:half], scale=scale)
    nisa.tensor_scalar(
        dst=tile[:, half:columns],
        data=sums[:, half:columns],
        op0=nl.multiply,
        operand0=scale,
        engine=nisa.engine.vector,
    )
    return tile
