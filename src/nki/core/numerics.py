"""Conversion between the stored form of every dtype and float32: the only code that rounds."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from nki.core import dtypes
from nki.core.dtypes import DType, byte_values, pack_x4
from nki.core.errors import DtypeError

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]

FP32_MAX = float(np.finfo(np.float32).max)
FP32_MIN = float(np.finfo(np.float32).min)

INTEGER_POISON = 4
"""What unwritten integers read as; nki/guides/nki_simulator.rst, "Uninitialized Memory Detection"."""

_EXPONENT = np.uint32(0x7F80_0000)
_TF32_DROPPED = 13


def to_f32(array: Array, dtype: DType) -> Float32:
    """The values of stored elements as float32.

    Exact for all floats, scales, bool and integers up to 16 bits; wider integers round to nearest, ties to even. Any
    byte but 0 is true.

    Args:
        array: storage, ``array.dtype == dtype.numpy``, any shape and strides.
        dtype: what it holds.

    Returns:
        float32 of the same shape; for float32 and tfloat32 it is `array` itself, not a copy.

    Raises:
        DtypeError: "dtype.packed" for x4 types, whose shape changes; see `unpack_x4`.
    """
    _not_packed(dtype, "unpack_x4")
    assert array.dtype == dtype.numpy, f"{array.dtype} does not store {dtype}"
    if dtype.kind == "bool":
        return np.asarray(array.view(np.uint8) != 0, dtype=np.float32)
    if dtype in _BYTE_FLOATS:
        return _byte_floats(array, dtype.numpy)
    if dtype is dtypes.float16 and array.flags.c_contiguous:
        return _look_up(_half_values(), array.view(np.uint16))
    return np.asarray(array, dtype=np.float32)


@np.errstate(all="ignore")
def round_to(values: npt.ArrayLike, dtype: DType) -> Array:
    """Float32 values in the stored form of `dtype`; no floating-point warning leaves this function.

    * Floats round to nearest, ties to even, with subnormals (about-neuron/arch/neuron-features/rounding-modes.rst). NaN
      stays NaN with its sign. Beyond the range the result is infinite, or NaN for ``float8_e4m3fn``, which has no
      infinity: the documents name no saturating mode for casts (``--enable-saturate-infinity`` concerns transposes that
      the compiler inserts), their simulator stores low-precision values with ml_dtypes (nki/guides/nki_simulator.rst,
      "Precise Floating-Point Mode"), and that is what ml_dtypes does; kernels clamp before they cast. ``tfloat32``
      keeps 10 bits of mantissa in a float32, and NaN and infinities as they are.
    * Integers round to nearest, ties to even, and saturate (release-notes/components/nki.rst, NKI 0.6.0,
      "fp32-to-integer casts match hardware"). That says nothing about NaN, which becomes 0 here, as in other
      conversions that saturate (IEEE 754 leaves it open; Arm, WebAssembly and LLVM's ``fptosi.sat`` give 0).
    * bool is ``value != 0``, hence true for NaN.
    * ``float8_e8m0fnu`` rounds to the nearest power of two (halfway goes up); zero, negative, infinite and NaN become
      NaN, and positive values below the range 2**-127 (ml_dtypes, which rounds all between 2**-127 and 2**-126 up,
      is not followed there).

    Args:
        values: float32 of any shape; anything else is converted to float32 first.
        dtype: destination.

    Returns:
        Array of ``dtype.numpy`` in the same shape; for float32 it is `values` itself if that was a float32 array.

    Raises:
        DtypeError: "dtype.packed" for x4 types; see `pack_x4`.
    """
    _not_packed(dtype, "pack_x4")
    source = np.asarray(values, dtype=np.float32)
    if dtype.is_integer:
        return _round_to_integer(source, dtype.numpy)
    if dtype in _BYTE_FLOATS:
        return _encode(source, dtype.numpy)
    if dtype.kind == "bool":
        return np.asarray(source != 0)
    if dtype is dtypes.tfloat32:
        return _round_tf32(source)
    return source.astype(dtype.numpy, copy=False)


@np.errstate(all="ignore")
def stochastic_round(values: npt.ArrayLike, dtype: DType, random_bits: npt.NDArray[np.uint32]) -> Array:
    """Float32 values in a float dtype, rounded up or down at random by their distance to both neighbours.

    The mantissa in units of the last kept bit, as a number with 32 fraction bits, plus the random word, without its
    fraction: a value that lies a fraction f above its lower neighbour (in magnitude) goes up in ``f * 2**32`` of
    ``2**32`` cases. Representable values, infinities and NaN come out as from `round_to`, and so does a magnitude that
    was rounded up beyond the range (about-neuron/arch/neuron-features/rounding-modes.rst, "Stochastic Rounding").

    Args:
        values: float32 of any shape.
        dtype: a float; float32 has nothing to round.
        random_bits: uint32, one word per value.

    Raises:
        DtypeError: "dtype.stochastic" if `dtype` is not a float.
    """
    if not dtype.is_float:
        raise DtypeError(
            "dtype.stochastic",
            f"{dtype} cannot be rounded stochastically",
            rule="stochastic rounding applies to floating-point destinations",
            source="about-neuron/arch/neuron-features/rounding-modes.rst",
            fix="round to nearest, or choose a float dtype",
        )
    source = np.asarray(values, dtype=np.float32)
    if dtype is dtypes.float32:
        return source
    kept_bits, smallest_exponent = _precision(dtype)
    bits = source.view(np.uint32)
    exponent = ((bits & _EXPONENT) >> 23).astype(np.int32)
    mantissa = (bits & np.uint32(0x7F_FFFF)).astype(np.uint64)
    mantissa |= np.where(exponent > 0, np.uint64(1 << 23), np.uint64(0))
    exponent = np.maximum(exponent, 1) - 127
    unit = np.maximum(exponent, smallest_exponent) - kept_bits
    # the value is mantissa * 2**(exponent - 23) = fixed * 2**-32 * 2**unit
    fixed = _shift(mantissa, exponent - 23 - unit + 32)
    count = (fixed + random_bits.astype(np.uint64)) >> np.uint64(32)
    rounded = np.copysign(np.ldexp(count.astype(np.float32), unit), source)
    return round_to(np.where((bits & _EXPONENT) == _EXPONENT, source, rounded), dtype)


def poison(dtype: DType) -> float | int | bool:
    """The value that unwritten storage shows: NaN, or where there is none, 4 (which is true as a bool).

    For packed types it is the value of each lane.
    """
    if dtype.kind == "bool":
        return bool(INTEGER_POISON)
    if dtype.is_integer or dtype is dtypes.float4_e2m1fn_x4:
        return INTEGER_POISON
    return float("nan")


def poison_fill(storage: npt.NDArray[np.uint8], dtype: DType) -> None:
    """Fill bytes with `poison` of `dtype`, in place.

    Args:
        storage: uint8, any shape; the last dimension is contiguous and a multiple of ``dtype.itemsize``.
    """
    word = _word(dtype)
    storage.view(word)[...] = _poisoned(dtype).view(word)


@cache  # one element for each dtype
def _poisoned(dtype: DType) -> Array:
    if dtype.is_packed:
        return pack_x4(np.full(dtypes.LANES, poison(dtype), np.float32), dtype)
    return np.full(1, poison(dtype), dtype.numpy)


def _word(dtype: DType) -> np.dtype[Any]:
    """The unsigned integer of the same size."""
    return np.dtype(f"u{dtype.itemsize}")


def _not_packed(dtype: DType, instead: str) -> None:
    if dtype.is_packed:
        raise DtypeError(
            "dtype.packed",
            f"{dtype} has no cast: four values share one element",
            rule="x4 types are never cast",
            source="nki/get-started/about/nki-dma-overview.rst",
            fix=f"use nki.core.dtypes.{instead} on the host, or nisa.quantize_mx in a kernel",
        )


# ---- integers


def _round_to_integer(source: Float32, stored: np.dtype[Any]) -> Array:
    info = np.iinfo(stored)
    high = _largest_f32(info.max)
    rounded = np.rint(source, out=np.empty_like(source))
    np.copyto(rounded, 0, where=np.isnan(rounded))
    result = np.clip(rounded, np.float32(info.min), high, out=np.empty_like(source)).astype(stored)
    if int(high) != info.max:
        np.copyto(result, info.max, where=rounded > high)
    return result


@cache  # one number for each integer dtype
def _largest_f32(limit: int) -> np.float32:
    """The largest float32 that is not above `limit`."""
    nearest = np.float32(limit)
    return nearest if int(nearest) <= limit else np.nextafter(nearest, np.float32(0))


# ---- floats


def _precision(dtype: DType) -> tuple[int, int]:
    """Kept bits of the mantissa, and the exponent of the smallest normal number."""
    if dtype is dtypes.tfloat32:
        return 23 - _TF32_DROPPED, -126
    info = ml_dtypes.finfo(dtype.numpy)
    return int(info.nmant), int(info.minexp)


def _shift(number: npt.NDArray[np.uint64], left: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """``number * 2**left`` without the fraction."""
    up = np.clip(left, 0, 63).astype(np.uint64)
    down = np.clip(-left, 0, 63).astype(np.uint64)
    return (number << up) >> down


def _round_tf32(source: Float32) -> Float32:
    bits = source.view(np.uint32)
    rounded = np.right_shift(bits, np.uint32(_TF32_DROPPED), out=np.empty_like(bits))
    rounded &= np.uint32(1)
    rounded += np.uint32((1 << (_TF32_DROPPED - 1)) - 1)
    rounded += bits
    rounded &= np.uint32(0xFFFF_FFFF << _TF32_DROPPED & 0xFFFF_FFFF)
    np.copyto(rounded, bits, where=(bits & _EXPONENT) == _EXPONENT)
    return rounded.view(np.float32)


# ---- floats of 8 bits and fewer: by table, several times as fast as elementwise conversion

_MANY = 1 << 10
"""Elements from which on the larger table pays."""

_BYTE_FLOATS = frozenset({dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e8m0fnu})


def _encode(source: Float32, stored: np.dtype[Any]) -> Array:
    """Round in two steps without rounding twice: the upper half of a float32 with a bit for "and something more".

    Rounding the first step to odd keeps all ties and directions for destinations with at least two bits fewer.
    """
    bits = source.view(np.uint32)
    index = bits & np.uint32(0xFFFF)
    index += np.uint32(0xFFFF)
    index |= bits
    index >>= np.uint32(16)
    return _look_up(_encoding(stored), index)


def _byte_floats(array: Array, stored: np.dtype[Any]) -> Float32:
    """The values of codes that take a byte each; two at a time where neighbours lie side by side."""
    if not array.flags.c_contiguous or array.size < _MANY or array.shape[-1] % 2:
        return _look_up(byte_values(stored), array.view(np.uint8))
    return _look_up(_pair_values(stored), array.view(np.uint16)).view(np.float32)


@cache
def _pair_values(stored: np.dtype[Any]) -> Array:
    """The float32 values of two codes in one element, by both codes as they lie in memory; read only."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    pairs: Array = byte_values(stored)[codes].view(np.uint64)
    pairs.flags.writeable = False
    return pairs


@cache  # a table of 256 KiB, made when it is first needed
@np.errstate(all="ignore")
def _half_values() -> Float32:
    """The float32 values of all float16 codes; read only."""
    values: Float32 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    values.flags.writeable = False
    return values


@cache  # a table of 64 KiB for each of a few formats
@np.errstate(all="ignore")
def _encoding(stored: np.dtype[Any]) -> Array:
    halves: Float32 = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    codes = halves.astype(stored)
    if stored == dtypes.float8_e8m0fnu.numpy:
        # ml_dtypes rounds everything between the two smallest powers of two up; the nearest one is meant
        codes[(halves >= 2.0**-127) & (halves < 1.5 * 2.0**-127)] = 2.0**-127
    return codes


def _look_up(table: Array, index: npt.NDArray[np.integer[Any]]) -> Array:
    result = np.empty(index.shape, table.dtype)
    np.take(table, index, out=result, mode="clip")
    return result
