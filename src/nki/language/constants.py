"""Constant tensors: shared_constant and shared_identity_matrix, made once per kernel."""

from __future__ import annotations

import io
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import nki.isa as nisa
from nki.core.dtypes import DType, uint8
from nki.core.errors import ArgumentError
from nki.core.nki_tensor import NkiTensor
from nki.core.regular import read_regular
from nki.core.tensor import whole
from nki.isa import alu
from nki.language.arguments import integer, public, tile
from nki.language.memory import filled_tile, new_tile
from nki.spec.allocation import checked_dtype
from nki.spec.sink import current_sink


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

    The values are part of the program; the same array gives the same tensor again.

    Args:
        constant: NumPy array of an NKI dtype, or the path of a .npy file.
    """
    array = _array(constant)
    kind = checked_dtype(array.dtype)
    values = np.ascontiguousarray(array).reshape(array.shape or (1,))
    key = ("constant", kind.name, values.shape, values.tobytes())
    found = _kept(key)
    if found is not None:
        return found
    storage = current_sink("nl.shared_constant").literal(values.shape, kind, values.tobytes())
    return _keep(key, NkiTensor.of(whole(storage.buffer), storage))


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
    current_sink("nl.shared_constant").unfollowed(f"nl.shared_constant reads {path!r}, which may change")
    try:
        return np.asarray(np.load(io.BytesIO(read_regular(Path(path))), allow_pickle=False))
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
