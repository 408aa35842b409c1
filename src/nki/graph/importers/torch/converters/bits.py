"""``view(dtype)``: the bits of elements read as another type."""

from __future__ import annotations

from typing import Any

import torch

from nki.core.dtypes import DType, bool_, complex64, float32, uint8
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters.complex import as_complex, as_real
from nki.graph.importers.torch.table import Call, converts, refused
from nki.graph.importers.torch.types import narrowed
from nki.graph.ir import TensorType, Value


@converts("view.dtype", "view_copy.dtype")
def _view_dtype(b: Builder, call: Call, x: Value, dtype: torch.dtype) -> Value:
    source: Any = call.node.args[0] if call.node is not None else None
    given = source.meta["val"].dtype
    if given == dtype:
        return x
    for kind in (given, dtype):
        if narrowed(kind) != kind:
            reason = f"{kind} has other bits on the device, where it is {narrowed(kind)}"
            raise refused(b, call, reason, "convert the tensor to a type of at most 32 bits first", x)
    if dtype == torch.complex64:
        pairs = _cast(b, x, float32)
        return as_complex(b, call, b.reshape(pairs, (*call.type.shape, 2)))
    if x.type.dtype is complex64:
        x = b.reshape(as_real(b, call, x), (*x.type.shape[:-1], 2 * x.type.shape[-1]))
    bits = b.convert(x, uint8) if x.type.dtype is bool_ else x
    wanted = uint8 if call.dtype is bool_ else call.dtype
    return b.convert(_cast(b, bits, wanted), call.dtype)


def _cast(b: Builder, x: Value, dtype: DType) -> Value:
    """The last dimension grows or shrinks as elements get smaller or larger; the lowest bits come first."""
    shape, have, want = x.type.shape, x.type.dtype.bits, dtype.bits
    if have == want:
        return b.one("bitcast_convert", (x,), TensorType(shape, dtype))
    if have > want:
        made = b.one("bitcast_convert", (x,), TensorType((*shape, have // want), dtype))
        return b.reshape(made, (*shape[:-1], shape[-1] * have // want))
    parts = b.reshape(x, (*shape[:-1], shape[-1] * have // want, want // have))
    return b.one("bitcast_convert", (parts,), TensorType(parts.type.shape[:-1], dtype))
