"""Plain data as bytes: a JSON document and arrays of integers, compressed. Reading makes numbers and text only."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_HEAD = struct.Struct("<QQ")
_LEVEL = 1
_MOST = 1 << 34
"""Bytes; what says that it has more is not read."""


class DamagedError(ValueError):
    """Bytes that `written` did not write."""


def written(document: Any, arrays: Sequence[np.ndarray]) -> bytes:
    """A document of JSON types, and one-dimensional arrays."""
    sizes = [[array.dtype.str, len(array)] for array in arrays]
    text = json.dumps([document, sizes], separators=(",", ":")).encode()
    packer = zlib.compressobj(_LEVEL)
    parts = [packer.compress(part) for part in (text, *[array.tobytes() for array in arrays])]
    total = len(text) + sum(array.nbytes for array in arrays)
    return b"".join([_HEAD.pack(len(text), total), *parts, packer.flush()])


def read(data: bytes) -> tuple[Any, list[np.ndarray]]:
    """What `written` wrote.

    Raises:
        DamagedError: for anything else.
    """
    try:
        length, total = _HEAD.unpack_from(data)
        if total > _MOST:
            raise DamagedError(f"{total} bytes")
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(memoryview(data)[_HEAD.size :], total + 1)
        if len(plain) != total or not unpacker.eof or unpacker.unused_data:
            raise DamagedError(f"{len(plain)} bytes instead of {total}")
        document, sizes = json.loads(plain[:length])
        return document, _arrays(memoryview(plain)[length:], sizes)
    except (struct.error, zlib.error, ValueError, TypeError) as error:
        raise DamagedError(str(error)) from error


def _arrays(data: memoryview, sizes: Sequence[Any]) -> list[np.ndarray]:
    arrays, at = [], 0
    for kind, count in sizes:
        dtype = np.dtype(kind)
        if dtype.kind not in "iu" or type(count) is not int or count < 0:
            raise DamagedError(f"{count} of {kind}")
        arrays.append(np.frombuffer(data, dtype, count, at) if count else np.empty(0, dtype))
        at += count * dtype.itemsize
    if at != len(data):
        raise DamagedError(f"{len(data) - at} bytes more than the arrays have")
    return arrays
