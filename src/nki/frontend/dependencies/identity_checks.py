"""Whether anything that was looked at has been touched: by identity, so that asking again costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import is_
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any

import numpy as np

MISSING: Any = object()
"""What a name stands for that is not there."""

_Get = Callable[[str, Any], Any]


class Probes:
    """Where every value was found, and what was there.

    A touched probe does not mean another value: whoever asks then compares by value.
    """

    __slots__ = (
        "_arrays",
        "_bytes",
        "_cells",
        "_functions",
        "_kinds",
        "_mappings",
        "_names",
        "_seen",
        "_sequences",
        "_sizes",
        "_slots",
    )

    def __init__(self) -> None:
        self._names: list[tuple[_Get, str, Any]] = []
        self._seen: set[tuple[int, str]] = set()
        self._functions: list[tuple[FunctionType, Any, Any, Any, int]] = []
        self._kinds: list[tuple[Any, str, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._mappings: list[tuple[Mapping[Any, Any], int, tuple[Any, ...], tuple[Any, ...]]] = []
        self._sequences: list[tuple[Collection[Any], int, tuple[Any, ...]]] = []
        self._sizes: list[tuple[Mapping[Any, Any], int]] = []
        self._slots: list[tuple[MemberDescriptorType, Any, Any]] = []
        self._arrays: list[tuple[np.ndarray, Any, Any, Any, bytes]] = []
        self._bytes: list[tuple[bytearray, bytes]] = []

    def name(self, names: Mapping[str, Any], name: str) -> None:
        """A name of a module, there or not; asked once, however many functions read it."""
        if (id(names), name) in self._seen:
            return
        self._seen.add((id(names), name))
        get: _Get = names.get
        self._names.append((get, name, get(name, MISSING)))

    def function(self, function: FunctionType) -> None:
        """Code, defaults and how many attributes; what is behind them is watched on its own."""
        count = len(function.__dict__)
        self._functions.append((function, function.__code__, function.__defaults__, function.__kwdefaults__, count))

    def kind(self, owner: Any, attribute: str) -> None:
        """An attribute that the interpreter keeps: the class or the dictionary of an object, the bases of a class."""
        self._kinds.append((owner, attribute, getattr(owner, attribute)))

    def cell(self, cell: CellType) -> None:
        """A variable of a function around."""
        self._cells.append((cell, _content(cell)))

    def mapping(self, mapping: Mapping[Any, Any]) -> None:
        """Keys and values, in order."""
        self._mappings.append((mapping, len(mapping), tuple(mapping.keys()), tuple(mapping.values())))

    def size(self, mapping: Mapping[Any, Any]) -> None:
        """How many names there are, whatever they stand for."""
        self._sizes.append((mapping, len(mapping)))

    def sequence(self, items: Collection[Any]) -> None:
        """Items of a list, set or deque, in order."""
        self._sequences.append((items, len(items), tuple(items)))

    def slot(self, descriptor: MemberDescriptorType, owner: Any) -> None:
        """A slot of an object, filled or not."""
        self._slots.append((descriptor, owner, slot_value(descriptor, owner)))

    def array(self, array: np.ndarray) -> None:
        """Bytes and form of an array."""
        self._arrays.append((array, array.dtype, array.shape, array.strides, array.tobytes()))

    def bytearray(self, data: bytearray) -> None:
        """Bytes that can change."""
        self._bytes.append((data, bytes(data)))

    def untouched(self) -> bool:
        """Whether every place still holds the very same object; cheap."""
        for get, name, expected in self._names:
            if get(name, MISSING) is not expected:
                return False
        for function, code, defaults, keywords, count in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keywords
                or len(function.__dict__) != count
            ):
                return False
        for mapping, count, keys, values in self._mappings:
            if len(mapping) != count or not all(map(is_, mapping.values(), values)):
                return False
            if not all(map(is_, mapping, keys)):
                return False
        for items, count, expected in self._sequences:
            if len(items) != count or not all(map(is_, items, expected)):
                return False
        if self._cells or self._kinds or self._sizes or self._slots or self._bytes or self._arrays:
            return self._others_untouched()
        return True

    def _others_untouched(self) -> bool:
        """What few kernels read; each kind is asked for only where there is some."""
        if self._cells and not all(_content(cell) is expected for cell, expected in self._cells):
            return False
        if self._kinds and not all(getattr(owner, name) is expected for owner, name, expected in self._kinds):
            return False
        if self._sizes and not all(len(mapping) == count for mapping, count in self._sizes):
            return False
        if self._slots and not all(slot_value(slot, owner) is expected for slot, owner, expected in self._slots):
            return False
        if self._bytes and not all(data == expected for data, expected in self._bytes):
            return False
        return not self._arrays or all(
            array.dtype == dtype and array.shape == shape and array.strides == strides and array.tobytes() == data
            for array, dtype, shape, strides, data in self._arrays
        )


def slot_value(descriptor: MemberDescriptorType, owner: Any) -> Any:
    """What a slot holds, or MISSING."""
    try:
        return descriptor.__get__(owner)
    except AttributeError:
        return MISSING


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING
