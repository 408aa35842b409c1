"""The data types of NKI: their names, sizes, ranges and how a host array stores them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NoReturn

import ml_dtypes
import numpy as np
import numpy.typing as npt

from nki.core.errors import DtypeError

Kind = Literal["float", "int", "uint", "bool", "packed", "scale", "complex"]

LANES = 4
"""Elements in one packed (x4) value."""

_SOURCE = "nki/api/nki.api.shared.rst, Supported Data Types by NKI"
_WIDE = ("float64", "float", "double", "longdouble", "float128", "complex64", "complex128")


@dataclass(frozen=True, slots=True)
class Element:
    """One lane of a packed dtype; lane 0 lies in the low bits.

    Attributes:
        name: name of the format, e.g. ``float8_e4m3fn``.
        numpy: dtype of one unpacked element in a host array (4-bit elements take a byte there).
        bits: bits in the packed value.
        min, max: finite range.
    """

    name: str
    numpy: np.dtype[Any]
    bits: int
    min: float
    max: float
    lanes: int = LANES


class DType(str):
    """A data type; a string, so that it can be compared with, formatted as and used in place of its name.

    There is one object per name. ``==`` accepts every spelling that `as_dtype` accepts and is False for anything else;
    the hash is that of the name, so only strings and `DType` find it in a dict or set. (``np.dtype("float32") ==
    nl.tfloat32`` is numpy's own comparison and looks at the storage, which is the same.)

    Attributes:
        name: canonical name as plain string.
        kind: family; "scale" is the exponent-only ``float8_e8m0fnu``, "packed" are the x4 types,
            "complex" is of models alone.
        bits: bits of storage that one element takes; 32 for ``tfloat32``, all four lanes for packed types.
        itemsize: bytes of storage.
        numpy: dtype of a host array that holds the storage.
        min, max: finite range, of one lane for packed types; rounded to double for 64-bit integers.
        signed: whether negative values exist.
        element: lane format of packed types, else None.
        device: False for 64-bit integers, which only host arrays and registers have, and for complex numbers.
    """

    __slots__ = ("bits", "device", "element", "itemsize", "kind", "max", "min", "name", "numpy", "signed")

    name: str
    kind: Kind
    bits: int
    itemsize: int
    numpy: np.dtype[Any]
    min: float
    max: float
    signed: bool
    element: Element | None
    device: bool

    def __new__(cls, value: object) -> DType:
        """The dtype that `as_dtype` makes of a value."""
        return as_dtype(value)

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers; not for scales and packed types."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers; not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_packed(self) -> bool:
        """True for the x4 types."""
        return self.kind == "packed"

    def __eq__(self, other: object) -> bool:
        return self is other or find(other) is self

    def __ne__(self, other: object) -> bool:
        return self is not other and find(other) is not self

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"nl.{'bool_' if self.kind == 'bool' else self.name}"

    def __reduce__(self) -> tuple[Callable[[object], DType], tuple[str]]:
        return as_dtype, (self.name,)

    def __setattr__(self, key: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} cannot be changed")

    def __delattr__(self, key: str) -> NoReturn:
        raise AttributeError(f"{self!r} cannot be changed")


def find(value: object) -> DType | None:
    """The dtype that `value` spells, or None; never raises. See `as_dtype` for the spellings."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        return _BY_SPELLING.get(str.__str__(value).removeprefix("torch."))
    if isinstance(value, np.dtype):
        return _BY_NUMPY.get(value)
    if isinstance(value, type):
        return _BY_TYPE.get(value) if type(value) is type else _BY_NUMPY.get(_declared(value))
    if _is_torch(value):
        return _BY_SPELLING.get(str(value).removeprefix("torch."))
    return None


def as_dtype(value: object) -> DType:
    """The dtype that `value` spells.

    Args:
        value: a name, a `DType`, a numpy dtype or scalar type, an ml_dtypes type, a torch dtype, a jax.numpy scalar
            type, or Python's ``bool``.

    Raises:
        DtypeError: "dtype.unsupported" for host types that no NeuronCore has, "dtype.unknown" for everything else.
    """
    found = find(value)
    if found is None:
        raise _rejected(value)
    return found


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The dtype whose storage `dtype` is: ``float32`` never gives ``tfloat32``. Raises like `as_dtype`."""
    return as_dtype(dtype)


@np.errstate(all="ignore")
def pack_x4(values: npt.ArrayLike, dtype: DType) -> npt.NDArray[Any]:
    """Four neighbours of the last dimension in one packed element each, the first in the low bits.

    Values round to nearest, ties to even, as ml_dtypes does, and saturate at the largest magnitude, infinities too
    (nki/deep-dives/src/mxfp-matmul/mx_cpu_utils.py limits them before it casts). NaN stays NaN in fp8; fp4 has none and
    gets a zero.

    Args:
        values: float32 ``[..., 4n]``; anything else is converted to float32 first.
        dtype: an x4 type.

    Returns:
        ``dtype.numpy[..., n]``.

    Raises:
        DtypeError: "dtype.not-packed" for another dtype, "dtype.lanes" if the last dimension is no multiple of 4.
    """
    element = _element(dtype)
    source = np.asarray(values, dtype=np.float32)
    if source.ndim == 0 or source.shape[-1] % element.lanes:
        raise DtypeError(
            "dtype.lanes",
            f"values of shape {list(source.shape)} do not fill elements of {dtype!r}",
            rule=f"the last dimension is a multiple of {element.lanes}",
            fix="pad the last dimension",
        )
    codes = np.clip(source, element.min, element.max).astype(element.numpy).view(np.uint8)
    lanes = codes.reshape(*source.shape[:-1], source.shape[-1] // element.lanes, element.lanes).astype(np.uint32)
    words = np.zeros(lanes.shape[:-1], np.uint32)
    for lane in range(element.lanes):
        words |= (lanes[..., lane] & _mask(element)) << np.uint32(lane * element.bits)
    return words.astype(f"u{dtype.itemsize}").view(dtype.numpy)


def unpack_x4(storage: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.float32]:
    """The values of packed elements, exactly; undoes `pack_x4`.

    Args:
        storage: ``[..., n]`` of ``dtype.numpy``, or of any other dtype of that size.
        dtype: an x4 type.

    Returns:
        float32 ``[..., 4n]``.

    Raises:
        DtypeError: "dtype.not-packed" for another dtype.
    """
    element = _element(dtype)
    words = storage.view(f"u{dtype.itemsize}")
    codes = np.empty((*words.shape, element.lanes), np.uint8)
    for lane in range(element.lanes):
        codes[..., lane] = (words >> (lane * element.bits)) & _mask(element)
    return byte_values(element.numpy)[codes.reshape(*words.shape[:-1], words.shape[-1] * element.lanes)]


@cache  # a table of 1 KiB for each of a few formats
@np.errstate(all="ignore")
def byte_values(stored: np.dtype[Any]) -> npt.NDArray[np.float32]:
    """The float32 values of all 256 codes of a format that takes a byte, by code; read only."""
    values = np.arange(1 << 8, dtype=np.uint8).view(stored).astype(np.float32)
    values.flags.writeable = False
    return values


def _element(dtype: DType) -> Element:
    if dtype.element is None:
        raise DtypeError("dtype.not-packed", f"{dtype!r} is not a packed dtype", fix="use one of the x4 types")
    return dtype.element


def _mask(element: Element) -> np.uint32:
    return np.uint32((1 << element.bits) - 1)


def _declared(kind: type) -> np.dtype[Any] | None:
    """jax.numpy scalar types are no numpy types, but classes with a metaclass and a numpy dtype in them."""
    declared = vars(kind).get("dtype")
    return declared if isinstance(declared, np.dtype) else None


def _is_torch(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "dtype" and kind.__module__ == "torch"


def unsupported(name: str, instead: str) -> DtypeError:
    """The error of a host dtype that no NeuronCore has."""
    return DtypeError(
        "dtype.unsupported",
        f"dtype {name} does not exist on a NeuronCore",
        source=_SOURCE,
        rule="elements have at most 32 bits, and are no complex numbers",
        fix=f"use {instead}",
    )


def _rejected(value: object) -> DtypeError:
    spelling = _spelling(value)
    if isinstance(value, np.dtype) and not value.isnative:
        return DtypeError(
            "dtype.unsupported",
            f"dtype {value.str!r} has the byte order of another machine",
            fix='convert the array on the host with array.astype(array.dtype.newbyteorder("="))',
        )
    if spelling in _WIDE:
        return unsupported(spelling, "nl.float32")
    close = [_SHORT[spelling]] if spelling in _SHORT else difflib.get_close_matches(spelling, BY_NAME, n=1, cutoff=0.4)
    return DtypeError(
        "dtype.unknown",
        f"{spelling!r} is not a dtype",
        source=_SOURCE,
        fix=f"write {BY_NAME[close[0]]!r}" if close else f"use one of {', '.join(BY_NAME)}",
    )


_SHORT = {
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32)},
    **dict.fromkeys(("f8", "fp8", "float8", "e4m3"), "float8_e4m3"),
    **dict.fromkeys(("e5m2", "fp8_e5m2"), "float8_e5m2"),
    **dict.fromkeys(("f16", "fp16", "half"), "float16"),
    **dict.fromkeys(("f32", "fp32", "single"), "float32"),
    "tf32": "tfloat32",
    "int": "int32",
    "uint": "uint32",
    "boolean": "bool",
}
"""What other programs call a dtype; as a name here it is an error that says what is meant."""


def _spelling(value: object) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type):
        return value.__name__
    return str(value).removeprefix("torch.")


def _define(
    name: str,
    kind: Kind,
    storage: npt.DTypeLike,
    limits: tuple[float, float],
    element: Element | None = None,
) -> DType:
    stored = np.dtype(storage)
    dtype = str.__new__(DType, name)
    values: dict[str, object] = {
        "name": name,
        "kind": kind,
        "bits": 8 * stored.itemsize,
        "itemsize": stored.itemsize,
        "numpy": stored,
        "min": limits[0],
        "max": limits[1],
        "signed": limits[0] < 0,
        "element": element,
        "device": kind != "complex" and not (kind in ("int", "uint") and stored.itemsize == 8),
    }
    for key, item in values.items():
        object.__setattr__(dtype, key, item)
    return dtype


def _float(name: str, scalar: type[np.generic]) -> DType:
    return _define(name, "float", scalar, _float_limits(scalar))


def _float_limits(scalar: type[np.generic]) -> tuple[float, float]:
    info = ml_dtypes.finfo(scalar)
    return float(info.min), float(info.max)


def _integer(name: str) -> DType:
    info = np.iinfo(name)
    return _define(name, "int" if info.min < 0 else "uint", name, (float(info.min), float(info.max)))


def _packed(element_name: str, scalar: type[np.generic], bits: int) -> DType:
    name = f"{element_name}_x{LANES}"
    low, high = _float_limits(scalar)
    element = Element(element_name, np.dtype(scalar), bits, low, high)
    return _define(name, "packed", _register(name, _packed_storage(name, bits)), (low, high), element)


def _packed_storage(name: str, bits: int) -> np.dtype[Any]:
    """A structure of two halves under a class of its own; numpy tells structures apart by their field names only."""
    scalar = type(name, (np.void,), {"__module__": __name__})
    half = f"u{LANES * bits // 16}"
    return np.dtype((scalar, [(f"{name}_low", half), (f"{name}_high", half)]))


def _register(name: str, storage: npt.DTypeLike) -> np.dtype[Any]:
    """Let ``np.dtype(name)`` work for a name that numpy lacks; an earlier registration by someone else stands."""
    known: MutableMapping[str, Any] = np.sctypeDict
    registered: np.dtype[Any] = np.dtype(known.setdefault(name, storage))
    if registered.itemsize != np.dtype(storage).itemsize:
        raise DtypeError(
            "dtype.registered",
            f"numpy already knows {name!r} as {registered}, which has another size",
            fix="import nki before the package that registers this name",
        )
    return registered


bool_ = _define("bool", "bool", np.bool_, (0.0, 1.0))
int8 = _integer("int8")
int16 = _integer("int16")
int32 = _integer("int32")
int64 = _integer("int64")
uint8 = _integer("uint8")
uint16 = _integer("uint16")
uint32 = _integer("uint32")
uint64 = _integer("uint64")
float16 = _float("float16", np.float16)
float32 = _float("float32", np.float32)
bfloat16 = _float("bfloat16", ml_dtypes.bfloat16)
_TF32_MAX = (2.0 - 2.0**-10) * 2.0**127
tfloat32 = _define("tfloat32", "float", _register("tfloat32", np.float32), (-_TF32_MAX, _TF32_MAX))
float8_e4m3 = _float("float8_e4m3", ml_dtypes.float8_e4m3)
float8_e4m3fn = _float("float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e5m2 = _float("float8_e5m2", ml_dtypes.float8_e5m2)
complex64 = _define("complex64", "complex", np.complex64, _float_limits(np.float32))
"""A dtype of models alone, before the graph compiler makes pairs of float32 of it; no tensor of a kernel has it."""

float8_e8m0fnu = _define("float8_e8m0fnu", "scale", ml_dtypes.float8_e8m0fnu, (2.0**-127, 2.0**127))
float8_e4m3fn_x4 = _packed("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 8)
float8_e5m2_x4 = _packed("float8_e5m2", ml_dtypes.float8_e5m2, 8)
float4_e2m1fn_x4 = _packed("float4_e2m1fn", ml_dtypes.float4_e2m1fn, 4)

BY_NAME: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, bfloat16, tfloat32,
        float8_e4m3, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, float8_e4m3fn_x4, float8_e5m2_x4, float4_e2m1fn_x4,
    )
}  # fmt: skip
"""All dtypes by canonical name; not to be changed."""

_BY_SPELLING: Mapping[str, DType] = {
    **BY_NAME,
    "bool_": bool_,
    "float8e4": float8_e4m3,  # what earlier releases printed for the two types
    "float8e5": float8_e5m2,
}
_BY_NUMPY: Mapping[np.dtype[Any] | None, DType] = {
    dtype.numpy: dtype for dtype in BY_NAME.values() if dtype is not tfloat32
}
_BY_TYPE: Mapping[type, DType] = {
    bool: bool_,
    **{np.dtype(code).type: _BY_NUMPY[np.dtype(code)] for code in np.typecodes["AllInteger"]},
    **{stored.type: dtype for stored, dtype in _BY_NUMPY.items() if stored is not None},
}
