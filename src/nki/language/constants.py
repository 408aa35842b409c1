"""Constant tensors: shared_constant and shared_identity_matrix, made once per kernel."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import nki.isa as nisa
from nki.core.dtypes import DType, uint8
from nki.core.errors import ArgumentError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, whole
from nki.isa import alu
from nki.language.arguments import integer, public, tile
from nki.language.memory import filled_tile, ndarray, new_tile
from nki.spec.allocation import checked_dtype
from nki.spec.sink import current_sink

_CHUNK = 8192
"""Elements that are staged in one SBUF partition at a time."""

_MOST_RUNS = 1 << 16


@public
def shared_identity_matrix(n: int, dtype: Any = uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """The identity matrix ``(n, n)`` in SBUF; the same tile for every call with the same `n` and `dtype`.

    Args:
        n: at most 128.
        dtype: any dtype but the packed ones.
        dst: SBUF tile ``(n, n)`` that is written and returned instead of a shared one, which should not be changed.
    """
    count, kind = integer(n, "n", "shared_identity_matrix"), checked_dtype(dtype)
    if dst is not None:
        own = tile(dst, "dst", "shared_identity_matrix")
        nisa.tensor_copy(dst=own, src=_identity(count, kind))
        return own
    return _identity(count, kind)


def _identity(n: int, dtype: DType) -> NkiTensor:
    key = ("identity", n, dtype.name)
    found = _kept(key)
    if found is not None:
        return found
    ones = filled_tile((n, n), dtype, 1)
    result = new_tile((n, n), dtype)
    nisa.affine_select(
        dst=result,
        pattern=[[-1, n]],
        channel_multiplier=1,
        on_true_tile=ones,
        on_false_value=0.0,
        cmp_op=alu.EQUAL,
    )
    return _keep(key, result)


@public
def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM with the values of an array that is known when the kernel is traced.

    The kernel writes it when it starts, one fill per run of equal bits; the same array gives the same tensor again.

    Args:
        constant: NumPy array of an NKI dtype, or the path of a .npy file.
    """
    array = _array(constant)
    kind = checked_dtype(array.dtype)
    values = np.ascontiguousarray(array).reshape(array.shape or (1,))
    bits = values.view(f"u{kind.itemsize}")
    key = ("constant", kind.name, values.shape, bits.tobytes())
    found = _kept(key)
    if found is not None:
        return found
    result = ndarray(values.shape, kind, MemoryRegion.shared_hbm)
    _write(result.reshape((prod(values.shape),)), bits.reshape(-1))
    return _keep(key, result)


def _write(flat: NkiTensor, bits: npt.NDArray[Any]) -> None:
    runs = int(np.count_nonzero(bits[1:] != bits[:-1])) + 1
    if runs > _MOST_RUNS:
        raise ArgumentError(
            "constant.size",
            f"the array of nl.shared_constant has {runs} runs of equal values",
            rule=f"a constant is written as at most {_MOST_RUNS} fills",
            facts={"runs": runs, "limit": _MOST_RUNS},
            fix="pass the array as an argument of the kernel",
        )
    stored = checked_dtype(bits.dtype)
    for start in range(0, bits.size, _CHUNK):
        part = bits[start : start + _CHUNK]
        row = new_tile((1, part.size), stored)
        for first, last, value in _fills(part):
            nisa.memset(dst=row[0:1, first:last], value=value)
        nisa.dma_copy(dst=flat[start : start + part.size], src=row.view(flat.dtype))


def _fills(bits: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """The most frequent value everywhere, then the runs of others."""
    found, counts = np.unique(bits, return_counts=True)
    common = found[np.argmax(counts)]
    yield 0, bits.size, int(common)
    edges = [0, *(np.flatnonzero(bits[1:] != bits[:-1]) + 1).tolist(), bits.size]
    for first, last in pairwise(edges):
        if bits[first] != common:
            yield first, last, int(bits[first])


def _array(constant: Any) -> npt.NDArray[Any]:
    if isinstance(constant, np.ndarray):
        array = constant
    elif isinstance(constant, str | os.PathLike):
        array = _file(os.fspath(constant))
    else:
        raise ArgumentError(
            "constant.kind",
            f"nl.shared_constant got {type(constant).__name__}",
            rule="a constant is a NumPy array or the path of a .npy file",
            fix="convert it with np.asarray on the host",
        )
    if array.size == 0:
        raise ArgumentError(
            "constant.empty", f"the array of nl.shared_constant has shape {list(array.shape)}", fix="pass elements"
        )
    return array


def _file(path: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as problem:
        raise ArgumentError(
            "constant.file", f"nl.shared_constant cannot read {path!r}: {problem}", fix="write it with np.save"
        ) from None


def _kept(key: Hashable) -> NkiTensor | None:
    storage = current_sink("nl.shared_constant").constant(key)
    return None if storage is None else NkiTensor.of(whole(storage.buffer), storage)


def _keep(key: Hashable, tensor: NkiTensor) -> NkiTensor:
    current_sink("nl.shared_constant").keep_constant(key, tensor.storage)
    return tensor
