"""Numbers of 8 bits in products: which format they have, and how activations become such numbers with a known scale."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.common_types import DtypeMode
from nkilib.limits import generation
from nkilib.stacks import Slab, Stack
from nkilib.streaming import load_repeated, sbuf


def float8(mode: DtypeMode) -> Any:
    """The format with four bits of exponent that a mode names on this target."""
    newer = bool(nisa.get_nc_version() >= nisa.nc_version.gen4)
    if mode is DtypeMode.OCP:
        generation("DtypeMode.OCP", 4, "older Tensor engines multiply float8_e4m3")
    return nl.float8_e4m3fn if mode is DtypeMode.OCP or (mode is DtypeMode.AUTO and newer) else nl.float8_e4m3


def largest(dtype: Any) -> float:
    """The largest number of an 8-bit format that kernels use."""
    return {nl.float8_e4m3: 240.0, nl.float8_e4m3fn: 448.0, nl.float8_e5m2: 57344.0}[dtype]


class Static:
    """Activations and weights with one scale each, known beforehand.

    Args:
        inputs: scale ``(128, 1)``, whose rows are equal, or ``(1, 1)``, in HBM.
        weights: scales ``(128, n)``, whose rows are equal, or ``(1, n)``, in HBM, of n parts of the columns.
        mode: which format activations are rounded to.

    Attributes:
        dtype: of those numbers.
        scale: the scales of products, ``(128, n)`` in SBUF, float32.
    """

    def __init__(self, inputs: Any, weights: Any, mode: DtypeMode) -> None:
        self.dtype = float8(mode)
        scale = column(inputs)
        self._factor, self._most, self._least = (sbuf(scale.shape, nl.float32) for _ in range(3))
        self.scale = sbuf((scale.shape[0], weights.shape[1]), nl.float32)
        nisa.reciprocal(dst=self._factor, data=scale)
        nisa.tensor_scalar(dst=self._most, data=scale, op0=nl.multiply, operand0=largest(self.dtype))
        nisa.tensor_scalar(dst=self._least, data=self._most, op0=nl.multiply, operand0=-1.0)
        nisa.tensor_scalar(dst=self.scale, data=column(weights), op0=nl.multiply, operand0=scale)

    def quantized(self, stack: Stack) -> Stack:
        """A stack over the scale as 8-bit numbers, larger ones clipped; its tiles are overwritten.

        Vector clips before Scalar divides, so that numbers are rounded once.
        """
        made = [Slab(sbuf(slab.tile.shape, self.dtype), slab.start, slab.stride, slab.base) for slab in stack]
        for slab, new in zip(stack, made, strict=True):
            self.convert(new.tile, slab.tile)
        return made

    def divided(self, columns: Any) -> Any:
        """Columns ``(rows, n)`` of float32 in SBUF over the scale, in place."""
        rows = columns.shape[0]
        nisa.tensor_scalar(dst=columns, data=columns, op0=nl.multiply, operand0=self._factor[0:rows])
        return columns

    def clipped(self, into: Any, tile: Any) -> None:
        """A tile that was divided by the scale already as 8-bit numbers, by Vector alone."""
        most = largest(self.dtype)
        nisa.tensor_scalar(dst=into, data=tile, op0=nl.minimum, operand0=most, op1=nl.maximum, operand1=-most)

    def convert(self, into: Any, tile: Any) -> None:
        """A tile over the scale as 8-bit numbers; it is overwritten."""
        rows = slice(0, tile.shape[0])
        nisa.tensor_scalar(
            dst=tile,
            data=tile,
            op0=nl.minimum,
            operand0=self._most[rows],
            op1=nl.maximum,
            operand1=self._least[rows],
        )
        nisa.activation(dst=into, op=nl.copy, data=tile, scale=self._factor[rows])


def column(scales: Any) -> Any:
    """Scales ``(128, n)``, whose rows are equal, or ``(1, n)``, of HBM as a tile ``(128, n)`` of float32."""
    return load_repeated(scales[0:1], nl.tile_size.pmax, nl.float32)
