"""Which conversions keep every value."""

from __future__ import annotations

from collections.abc import Mapping

from nki.core.dtypes import DType

_FLOATS: Mapping[str, tuple[int, int]] = {
    "float32": (8, 23),
    "bfloat16": (8, 7),
    "float16": (5, 10),
    "float8_e5m2": (5, 2),
    "float8_e4m3fn": (4, 3),
    "float8_e4m3": (4, 3),
}
"""Bits of exponents and significands. Formats of 8 bits differ in what is infinite, so that only wider ones hold all of
their values."""

_HALVES = ("bfloat16", "float16")


def lossless(narrow: DType, wide: DType) -> bool:
    """True if every value of `narrow` is one of `wide`."""
    if narrow is wide:
        return True
    if narrow.kind == "bool":
        return wide.is_integer or wide.name in _FLOATS
    if narrow.is_integer and wide.is_integer:
        return narrow.min >= wide.min and narrow.max <= wide.max
    if narrow.is_integer and wide.name in _FLOATS:
        return narrow.bits <= _FLOATS[wide.name][1] + 1 and narrow.max <= wide.max
    if narrow.name in _FLOATS and wide.name in _FLOATS and narrow.bits < wide.bits:
        return all(one <= two for one, two in zip(_FLOATS[narrow.name], _FLOATS[wide.name], strict=True))
    return False


def computed_alike(source: DType, result: DType) -> bool:
    """True for conversions that a pattern's kernel, which computes in float32, may leave out between its operations:
    those that keep every value, and roundings to the halves that models compute in. Roundings to fewer bits are
    meant."""
    return lossless(source, result) or (source.name == "float32" and result.name in _HALVES)
