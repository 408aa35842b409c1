"""ATen's matrix products. Products of small floats are added up in float32."""

from __future__ import annotations

from nki.core.dtypes import float32, int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, converts
from nki.graph.ir import Value


@converts("mm")
def _mm(b: Builder, call: Call, x: Value, y: Value) -> Value:
    return b.dot(x, y, ((1,), (0,)))


@converts("_int_mm")
def _int_mm(b: Builder, call: Call, x: Value, y: Value) -> Value:
    """Products of bytes as 32-bit integers."""
    return b.dot(b.convert(x, int32), b.convert(y, int32), ((1,), (0,)))


@converts("mv", "dot")  # PyTorch multiplies and adds up, which no Tensor engine does
def _mv(b: Builder, call: Call, x: Value, y: Value) -> Value:
    return b.dot(x, y, ((len(x.type.shape) - 1,), (0,)))


@converts("bmm")
def _bmm(b: Builder, call: Call, x: Value, y: Value) -> Value:
    return b.dot(x, y, ((2,), (1,)), ((0,), (0,)))


@converts("linear")  # one rounding, where a product and a sum have two
def _linear(b: Builder, call: Call, x: Value, weight: Value, bias: Value | None) -> Value:
    product = _exact(b, x, weight, ((len(x.type.shape) - 1,), (1,)), ((), ()))
    return b.convert(product if bias is None else _sum(b, bias, product, 1, 1), call.dtype)


@converts("addmm")
def _addmm(b: Builder, call: Call, term: Value, x: Value, y: Value, beta: float, alpha: float) -> Value:
    return b.convert(_sum(b, term, _exact(b, x, y, ((1,), (0,)), ((), ())), beta, alpha), call.dtype)


@converts("addmv")
def _addmv(b: Builder, call: Call, term: Value, x: Value, y: Value, beta: float, alpha: float) -> Value:
    return _addmm(b, call, term, x, y, beta, alpha)


@converts("baddbmm")  # one kernel and one rounding, where a product and a sum have two
def _baddbmm(b: Builder, call: Call, term: Value, x: Value, y: Value, beta: float, alpha: float) -> Value:
    return b.convert(_sum(b, term, _exact(b, x, y, ((2,), (1,)), ((0,), (0,))), beta, alpha), call.dtype)


Dims = tuple[tuple[int, ...], tuple[int, ...]]


def _exact(b: Builder, x: Value, y: Value, contracting: Dims, batch: Dims) -> Value:
    """A product that is rounded to float32 at most, since something is added to it."""
    small = x.type.dtype.is_float and x.type.dtype.bits < 32
    return b.dot(x, y, contracting, batch, float32 if small else None)


def _sum(b: Builder, term: Value, product: Value, beta: float, alpha: float) -> Value:
    product = product if alpha == 1 else b.multiply(product, alpha)
    if beta == 0:
        return product
    term = b.convert(term, product.type.dtype)
    return b.add(product, term if beta == 1 else b.multiply(term, beta))
