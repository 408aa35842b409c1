"""Destinations that a call leaves out, as in the second beta of NKI: a new tile of the shape that the result has.

The tile is in SBUF and has the dtype of the first tensor that is read, unless `dtype` says another one. Results of the
Tensor engine are in PSUM; products are float32. What has two meanings has no implicit destination: a mask, two tensors
of different dtypes without `dtype`, and instructions that are not listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

from nki.core.dtypes import DType, float32
from nki.core.nki_tensor import NkiTensor
from nki.core.source import here
from nki.core.tensor import MemoryRegion, whole
from nki.spec.allocation import check_fit, checked_dtype
from nki.spec.engine import engine as Engine
from nki.spec.rule import Finding
from nki.spec.sink import Sink

Inputs = Mapping[str, Any]


class Tile(NamedTuple):
    """What a destination is."""

    shape: tuple[int, ...]
    dtype: DType
    region: MemoryRegion = MemoryRegion.sbuf


_LIKE = {
    "activation": "data",
    "activation_reduce": "data",
    "affine_select": "on_true_tile",
    "dropout": "data",
    "exponential": "src",
    "range_select": "on_true_tile",
    "reciprocal": "data",
    "scalar_tensor_tensor": "data",
    "tensor_copy": "src",
    "tensor_scalar": "data",
    "tensor_scalar_reduce": "data",
    "tensor_tensor": "data1",
    "tensor_tensor_scan": "data0",
}
"""Instructions whose result has the shape of one of their tensors, by its name."""

_BOTH = {"tensor_tensor": ("data1", "data2"), "tensor_tensor_scan": ("data0", "data1")}
"""Instructions for which the dtypes of two tensors count."""


def _reduced(inputs: Inputs) -> Tile | None:
    data, axis = inputs["data"], inputs["axis"]
    axes = {each % len(data.shape) for each in ((axis,) if isinstance(axis, int) else axis)}
    if inputs.get("keepdims"):
        return Tile(tuple(1 if at in axes else size for at, size in enumerate(data.shape)), data.dtype)
    left = tuple(size for at, size in enumerate(data.shape) if at not in axes)
    return Tile(left if len(left) > 1 else (*left, 1), data.dtype)


def _product(inputs: Inputs) -> Tile | None:
    stationary, moving = inputs["stationary"], inputs["moving"]
    dtype = moving.dtype if inputs.get("is_transpose") else float32
    return Tile((prod(stationary.shape[1:]), *moving.shape[1:]), dtype, MemoryRegion.psum)


def _transposed(inputs: Inputs) -> Tile | None:
    data = inputs["data"]
    if data.dtype.itemsize == 1:
        return None  # the Tensor engine leaves them in slots of two bytes
    region = MemoryRegion.sbuf if inputs.get("engine") is Engine.vector else MemoryRegion.psum
    return Tile((prod(data.shape[1:]), data.shape[0]), data.dtype, region)


_OWN: Mapping[str, Callable[[Inputs], Tile | None]] = {
    "tensor_reduce": _reduced,
    "nc_matmul": _product,
    "nc_transpose": _transposed,
}


def tile_for(name: str, inputs: Inputs, dtype: Any) -> Tile | None:
    """The destination of a call of the instruction `name` without one; None if there is no one meaning.

    Args:
        inputs: the other arguments that were given.
        dtype: that of the result; None if nothing was said.
    """
    if name in _OWN:
        found = _OWN[name](inputs)
    else:
        source = inputs.get(_LIKE.get(name, ""))
        if not isinstance(source, NkiTensor) or not source.view_record.on_chip:
            return None
        dtypes = {inputs[each].dtype for each in _BOTH.get(name, ()) if isinstance(inputs.get(each), NkiTensor)}
        if len(dtypes) > 1 and dtype is None:
            return None
        found = Tile(tuple(source.shape), source.dtype)
    return found if found is None or dtype is None else found._replace(dtype=checked_dtype(dtype))


def allocated(tile: Tile, sink: Sink) -> NkiTensor:
    """A new tile. Raises what `nl.ndarray` raises where there is no room."""
    check_fit(tile.shape, tile.dtype, tile.region, None, sink.target, sink.exceeded)
    storage = sink.allocate(tile.shape, tile.dtype, tile.region, "", None)
    return NkiTensor.of(whole(storage.buffer), storage)


def told(label: str, tile: Tile, call: str) -> Finding:
    """The note of such a call."""
    where = "" if tile.region is MemoryRegion.sbuf else ", buffer=nl.psum"
    return Finding(
        "call.implicit-destination",
        "warning",
        f"{label} is called without dst, and writes to a new tile",
        "since NKI 0.3 dst comes first, and instructions return no tensor",
        "nki/migration/index.rst, All ISA functions require a destination parameter",
        f"write result = nl.ndarray({tile.shape}, nl.{tile.dtype}{where}), and {call}",
        here(),
        {},
    )
