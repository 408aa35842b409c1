"""Memory as kernels see it: regions, buffers, and views of them."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from dataclasses import MISSING, dataclass, field
from enum import Enum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import ArgumentError
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN, Location


class MemoryRegion(Enum):
    """Where a buffer lives."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def is_hbm(self) -> bool:
        """True for both kinds of device memory."""
        return self is MemoryRegion.private_hbm or self is MemoryRegion.shared_hbm

    @property
    def on_chip(self) -> bool:
        """True for SBUF and PSUM, whose first dimension is the partition."""
        return self in _ON_CHIP

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"nl.{self.value}"


class _FieldsByKeyword(type):
    """Gives dataclasses the constructor that the language synthesises (nki-language-guide.rst, "Classes").

    All fields may be given by keyword, annotated or not, and one that is not given is None. Python's ``@dataclass``
    sees only annotated fields and asks for every one without a default.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        known: dict[str, Any] | None = cls.__dict__.get("__dataclass_fields__")
        own = vars(cls).get("__init__")
        if known is None or own is None or own.__code__.co_filename != "<string>":  # the class has its own constructor
            return super().__call__(*args, **kwargs)
        made: Any = object.__new__(cls)  # type: ignore[arg-type]
        for name in [k for k in kwargs if k not in known and k in cls.__dict__]:
            object.__setattr__(made, name, kwargs.pop(name))
        for name in _required(known)[len(args) :]:
            kwargs.setdefault(name, None)
        made.__init__(*args, **kwargs)
        return made


def _required(fields: dict[str, Any]) -> list[str]:
    return [
        name
        for name, item in fields.items()
        if item.init and item.default is MISSING and item.default_factory is MISSING
    ]


class NKIObject(metaclass=_FieldsByKeyword):
    """Base class for a kernel's own argument and helper classes.

    Every field can be given by keyword; one that is not given and has no default becomes ``None``.
    """

    def __init__(self, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in _declared_fields(type(self)) and not hasattr(type(self), name):
                raise ArgumentError(
                    "object.unknown-field",
                    f"{type(self).__name__} has no field {name!r}",
                    fix=f"declare it in class {type(self).__name__}, or correct the keyword",
                )
        for name, value in {**_declared_fields(type(self)), **kwargs}.items():
            setattr(self, name, value)
        post = getattr(type(self), "__post_init__", None)
        if post is not None:
            post(self)


def _declared_fields(kind: type) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name in inspect.get_annotations(base):
            fields[name] = getattr(kind, name, None)
    return fields


_ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
_set = object.__setattr__

_LAYOUTS: dict[tuple[Any, ...], object] = {}
"""One object for each layout in the process, so that they can be compared by identity; emptied at `_MOST_LAYOUTS`."""

_MOST_LAYOUTS = 1 << 14


def _layout(key: tuple[Any, ...]) -> object:
    found = _LAYOUTS.get(key)
    if found is None:
        if len(_LAYOUTS) >= _MOST_LAYOUTS:
            _LAYOUTS.clear()
        found = _LAYOUTS.setdefault(key, object())
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """One allocation. On chip ``shape[0]`` counts partitions and the rest lies in each of them.

    Attributes:
        address: explicit ``(partition, byte)`` on chip, or None if the allocator chooses.
        trace: token of the trace that owns it; a tensor is only usable there.
        role: "input", "temporary", "constant", "fixed": an input that no core ever writes, "copy": a temporary that
            the language fills from PSUM, so that what reads it may read PSUM instead (nki.passes.copy_propagation), or
            "spilled": a temporary in which a tensor waits that does not fit on chip (nki.passes.allocation.spill).
        data: the bytes of a constant, which is there from the start; None for all others.
        layout: one object for all buffers with this region, shape, size of a row and explicit address, so that it tells
            them from others by its identity; a copy of it is merely not recognised.
    """

    id: int
    name: str
    region: MemoryRegion
    shape: tuple[int, ...]
    dtype: DType
    address: tuple[int, int] | None = None
    role: str = "temporary"
    location: Location = UNKNOWN
    trace: Hashable = None
    data: bytes | None = field(default=None, repr=False)
    on_chip: bool = field(init=False)
    row_bytes: int = field(init=False)
    layout: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        region, shape = self.region, self.shape
        on_chip = region in _ON_CHIP
        row_bytes = prod(shape[1:] if on_chip else shape) * self.dtype.itemsize
        _set(self, "on_chip", on_chip)
        _set(self, "row_bytes", row_bytes)
        _set(self, "layout", _layout((region._value_, shape, row_bytes, self.address)))

    @property
    def partitions(self) -> int:
        """Partitions that it spans; 1 for HBM, whose bytes form one row."""
        return self.shape[0] if self.on_chip else 1

    @property
    def nbytes(self) -> int:
        """Bytes over all partitions."""
        return self.shape[0] * self.row_bytes if self.on_chip else self.row_bytes

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}{list(self.shape)} in {self.region})"


class ScalarOffset(NamedTuple):
    """A dynamic start: ``indices * scale`` elements are added to the offset of the view."""

    indices: View | VirtualRegister
    scale: int


class VectorOffset(NamedTuple):
    """Row ``p`` of the view starts at ``indices[p] * scale`` elements (plus the offset of the view)."""

    indices: View
    scale: int


class FreeIndirection(NamedTuple):
    """Element ``i`` of each row lies at free offset ``indices[i % G, i // G]``; G belongs to the engine."""

    indices: View
    elements: int


Dynamic = ScalarOffset | VectorOffset | FreeIndirection


class View(NamedTuple):
    """Which elements of a buffer: ``offset + sum(index * stride)``, all in elements of ``dtype``.

    On chip the elements of a buffer are numbered partition by partition, so that ``strides[0]`` is the number of
    elements in one partition and ``offset`` holds the start partition and the free offset.
    """

    buffer: Buffer
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dynamic: Dynamic | None = None

    @property
    def region(self) -> MemoryRegion:
        return self.buffer.region

    @property
    def on_chip(self) -> bool:
        return self.buffer.on_chip

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements in the view."""
        return prod(self.shape)

    @property
    def partitions(self) -> int:
        """Size of the first dimension."""
        return self.shape[0]

    @property
    def free_size(self) -> int:
        """Elements per partition."""
        return prod(self.shape[1:])

    @property
    def row(self) -> int:
        """Elements of this dtype in one partition of the buffer; in HBM, in the whole buffer."""
        return self.buffer.row_bytes // self.dtype.itemsize

    @property
    def start_partition(self) -> int:
        """First partition that is touched, counted from the start of SBUF or PSUM if the address is explicit."""
        base = self.buffer.address[0] if self.buffer.address else 0
        return base + self.offset // self.row

    @property
    def free_offset(self) -> int:
        """Elements from the start of the buffer's partition row."""
        return self.offset % self.row

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def describe(self) -> str:
        """Short text for messages: ``float32[128, 512] in sbuf``."""
        return f"{self.dtype}{list(self.shape)} in {self.region}"


_new_tuple = tuple.__new__


def view_of(buffer: Buffer, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> View:
    """``View(...)`` of a static view, made in half the time."""
    return _new_tuple(View, (buffer, dtype, shape, strides, offset, None))


def whole(buffer: Buffer) -> View:
    """The view of all elements in row-major order."""
    shape = buffer.shape
    return view_of(buffer, buffer.dtype, shape, contiguous_strides(shape), 0)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    if len(shape) == 2:
        return (shape[1], 1)
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Storage:
    """What keeps the bytes of a buffer alive: `array` is uint8 ``[partitions, row_bytes]`` or None while tracing."""

    __slots__ = ("__weakref__", "array", "buffer")

    def __init__(self, buffer: Buffer, array: np.ndarray | None = None) -> None:
        self.buffer = buffer
        self.array = array

    def values(self, view: View) -> np.ndarray | None:
        """A copy of the values of a view, for debuggers; None if there are none yet."""
        return None
