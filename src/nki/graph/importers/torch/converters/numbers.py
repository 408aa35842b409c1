"""ATen's elementwise operators on how numbers are made: signs, extremes without NaN, decimals, divisors."""

from __future__ import annotations

import math

from nki.core.dtypes import bool_, int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, Converter, converts, wide
from nki.graph.ir import TensorType, Value


def bits_of(b: Builder, x: Value) -> Value:
    """The bits of float32 as int32."""
    return b.one("bitcast_convert", (x,), TensorType(x.type.shape, int32))


@converts("signbit")
def _signbit(b: Builder, call: Call, x: Value) -> Value:
    if x.type.dtype is bool_ or x.type.dtype.kind == "uint":
        return b.constant(False, bool_, x.type.shape)
    return b.compare("LT", bits_of(b, wide(b, x)) if x.type.dtype.is_float else x, 0)


def _known(kind: str, logical: str) -> Converter:
    """The extreme of two numbers, or the only one that is no NaN."""

    def convert(b: Builder, call: Call, x: Value, y: Value) -> Value:
        left, right = b.paired(b.convert(x, call.dtype), b.convert(y, call.dtype))
        if call.dtype is bool_:
            return b.binary(logical, left, right)
        best = b.binary(kind, left, right)
        if not call.dtype.is_float:
            return best
        best = b.select(b.compare("NE", right, right), left, best)
        return b.select(b.compare("NE", left, left), right, best)

    return convert


fmax = converts("fmax")(_known("maximum", "or"))
fmin = converts("fmin")(_known("minimum", "and"))


@converts("round.decimals")
def _round(b: Builder, call: Call, x: Value, decimals: int) -> Value:
    """Scaled in the tensor's own dtype, as PyTorch does."""
    if not x.type.dtype.is_float or decimals == 0:
        return b.unary("round_nearest_even", x) if x.type.dtype.is_float else x
    factor = b.constant(math.pow(10.0, abs(decimals)), x.type.dtype)
    larger, smaller = (b.multiply, b.divide) if decimals > 0 else (b.divide, b.multiply)
    return smaller(b.unary("round_nearest_even", larger(x, factor)), factor)
