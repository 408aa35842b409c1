"""ATen's scan of logarithms of sums of exponentials."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import float32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, axis, converts, wide
from nki.graph.ir import Value


def _both(b: Builder, x: Value, y: Value) -> Value:
    """``log(exp(x) + exp(y))``; equal infinities have no difference."""
    large, small = b.binary("maximum", x, y), b.binary("minimum", x, y)
    grown = b.unary("exponential", b.subtract(small, large))
    whole = b.add(large, b.unary("log_plus_one", grown))
    same = b.binary("and", b.compare("EQ", large, small), b.compare("EQ", b.unary("abs", large), np.inf))
    return b.select(same, large, whole)


@converts("logcumsumexp")
def _logcumsumexp(b: Builder, call: Call, x: Value, dim: int) -> Value:
    """After step s, each element holds what 2**s elements up to it give together."""
    if not x.type.shape:
        return x
    data, dim, reach = b.convert(wide(b, x), float32), axis(x, dim), 1
    while reach < x.type.shape[dim]:
        low = [reach if i == dim else 0 for i in range(len(x.type.shape))]
        data = _both(b, b.pad(data, -np.inf, low, [-n for n in low]), data)
        reach *= 2
    return b.convert(data, call.dtype)
