"""What each kind of value consists of."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import logging
import pathlib
import re
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from nki.core.dtypes import DType
from nki.frontend.check.name_resolution import KERNEL_ATTRIBUTES, is_kernel
from nki.frontend.dependencies.cached_functions import read_outside
from nki.frontend.dependencies.code_objects import encoded
from nki.frontend.dependencies.digest import DigestWriter
from nki.frontend.dependencies.foreign_code import is_impure, module_of, origin_of_module

ARRAY_LIMIT_BYTES = 1 << 20
"""Larger arrays outside of a kernel's arguments are not compared: it would take longer than many a kernel's trace."""

_PLAIN_MODULES = frozenset({"abc", "dataclasses", "enum", "inspect", "types", "typing", "typing_extensions"})
"""Modules of the standard library whose classes keep nothing but attributes."""

Content = Callable[[DigestWriter, Any, str], None]


def write_object(writer: DigestWriter, value: Any, label: str) -> None:
    """Class, contents and attributes of an object that is neither function, class nor module."""
    kind = type(value)
    if is_kernel(value):
        writer.text("kernel")
        writer.value(dataclasses.replace(value.launch()), label)  # a new one: for this one calls were settled
        _attributes_put_on(writer, value, label)
        return
    base = next(each for each in kind.__mro__ if each in CONTENTS)
    writer.text("of", base.__qualname__)
    if kind is not base and not (base in _SEALED and origin_of_module(module_of(kind)) != "user"):
        _write_state(writer, value, label)
    CONTENTS[base](writer, value, label)


def _attributes_put_on(writer: DigestWriter, kernel: Any, label: str) -> None:
    """What somebody else than the class has put on a kernel, or will: names that it has itself are not for reading."""
    own = vars(kernel)
    names = sorted(own.keys() - KERNEL_ATTRIBUTES)
    writer.probes.size(own)
    writer.text("attributes", *names)
    for name in names:
        writer.probes.name(own, name)
        writer.value(own[name], f"{label}.{name}")


def _write_state(writer: DigestWriter, value: Any, label: str) -> None:
    """The class by value, then every attribute that an instance keeps itself."""
    kind = type(value)
    strange = next((each for each in kind.__mro__ if not _is_plain(each)), None)
    if strange is not None:
        if (module_of(kind), kind.__name__) == ("torch", "dtype"):
            writer.text("torch", repr(value))
            return
        writer.refuse(f"{label} is a {module_of(kind)}.{kind.__qualname__}, which cannot be compared by value")
        return
    writer.probes.kind(value, "__class__")
    writer.value(kind, f"the class of {label}")
    if hasattr(value, "__dict__"):
        writer.probes.kind(value, "__dict__")
        writer.mapping(vars(value), label, _INSTANCE_CACHES)
    for each in kind.__mro__:
        for slot in vars(each).values():
            if isinstance(slot, types.MemberDescriptorType) and each not in CONTENTS:
                writer.slot(slot, value, label)


def _is_plain(kind: type) -> bool:
    """Whether instances keep nothing but attributes, and what `CONTENTS` knows."""
    module = module_of(kind)
    if kind in CONTENTS or module in _PLAIN_MODULES:
        return True
    return module != "builtins" and origin_of_module(module) in ("user", "package")


def _nothing(writer: DigestWriter, value: Any, label: str) -> None:
    """An `object()`: it is itself, and has no value."""


def _constant(base: type) -> Content:
    """What to write of instances of a class that extends a constant's: the constant itself."""
    return lambda writer, value, label: writer.constant(base(value))


def _sequence(writer: DigestWriter, value: Any, label: str) -> None:
    writer.probes.sequence(value)
    writer.text(str(len(value)))
    for item in value:
        writer.value(item, f"an item of {label}")


def _tuple(writer: DigestWriter, value: Any, label: str) -> None:
    writer.value(tuple(value), label)


def _set(writer: DigestWriter, value: Any, label: str) -> None:
    """Members in the order of their bytes, because sets of equal members may list them differently."""
    writer.probes.sequence(value)
    members: list[bytes] = []
    for item in value:
        try:
            members.append(encoded(_member(item)))
        except TypeError:
            writer.refuse(f"{label} is a set with a {type(item).__qualname__} in it, whose order is not defined")
            return
    writer.constant(tuple(sorted(members)))


def _member(item: Any) -> Any:
    if isinstance(item, enum.Enum):
        return module_of(type(item)), type(item).__qualname__, item.name
    if isinstance(item, np.dtype):
        return "dtype", item.str, item.name
    return str(item) if isinstance(item, str) else item


def _mapping(writer: DigestWriter, value: Any, label: str) -> None:
    writer.mapping(value, label)


def _default_mapping(writer: DigestWriter, value: Any, label: str) -> None:
    writer.value(value.default_factory, f"the default of {label}")
    writer.mapping(value, label)


def _array(writer: DigestWriter, value: np.ndarray, label: str) -> None:
    if value.dtype.hasobject:
        writer.refuse(f"{label} is an array of objects, which cannot be compared by value")
    elif value.nbytes > ARRAY_LIMIT_BYTES:
        writer.refuse(f"{label} is an array of {value.nbytes} bytes; only {ARRAY_LIMIT_BYTES} are compared by value")
    else:
        writer.probes.array(value)
        _dtype(writer, value.dtype, label)
        writer.constant((value.shape, value.tobytes(), value.flags.writeable))


def _scalar(writer: DigestWriter, value: np.generic, label: str) -> None:
    _dtype(writer, value.dtype, label)
    writer.constant(value.tobytes())


def _dtype(writer: DigestWriter, value: np.dtype[Any], label: str) -> None:
    if value.hasobject:
        writer.refuse(f"{label} has objects in it, which cannot be compared by value")
    writer.constant((value.str, value.name, repr(value.fields), value.type.__module__, value.type.__qualname__))


def _bytearray(writer: DigestWriter, value: bytearray, label: str) -> None:
    writer.probes.bytearray(value)
    writer.constant(bytes(value))


def _attributes(*names: str) -> Content:
    """An object that consists of some attributes."""

    def write(writer: DigestWriter, value: Any, label: str) -> None:
        for name in names:
            writer.value(getattr(value, name), label)

    return write


def _shown(writer: DigestWriter, value: Any, label: str) -> None:
    """An object whose text says everything."""
    writer.constant(repr(value))


def _path(writer: DigestWriter, value: pathlib.PurePath, label: str) -> None:
    """A path counts by its text; what is there on the disk counts as well where a kernel may look (`Walk`)."""
    writer.constant(str(value))
    if isinstance(value, pathlib.Path):
        writer.paths.append(label)


def _logger(writer: DigestWriter, value: logging.Logger, label: str) -> None:
    """What a logger prints is no part of a kernel; its level may be asked."""
    writer.constant((value.name, value.getEffectiveLevel()))


def _builtin(writer: DigestWriter, value: Any, label: str) -> None:
    """A function in C: of a module, by name; bound to an object, with it."""
    owner = value.__self__
    if owner is not None and not isinstance(owner, types.ModuleType):
        writer.constant(value.__qualname__)
        writer.value(owner, f"the owner of {label}")
        return
    named(writer, value, label)


def named(writer: DigestWriter, value: Any, label: str) -> None:
    """A function or class of a library counts by its name, unless it may answer differently the next time."""
    # A decorator of the library may have given its function the name of the user's.
    # A ufunc that is not of NumPy itself does not say where it is from; its type does.
    own = value.__module__ if hasattr(value, "__module__") else type(value).__module__
    module = value.__globals__["__name__"] if isinstance(value, types.FunctionType) else own
    module, name = str(module or "builtins"), str(value.__name__)
    writer.constant((module, name))
    if name.endswith("(vectorized)"):
        writer.refuse(f"{label} is made of a function by numpy.frompyfunc, which does not show it")
    public = module.lstrip("_") if module in ("_random", "_io") else module
    if is_impure(public, name):
        writer.refuse(f"{label} is {public}.{name}, which may answer differently in every call")


def _descriptor(writer: DigestWriter, value: Any, label: str) -> None:
    """An attribute that a class in C, or a slot, defines."""
    writer.constant((type(value).__name__, value.__objclass__.__qualname__, value.__name__))


def _field_of_named_tuple(writer: DigestWriter, value: Any, label: str) -> None:
    writer.constant(value.__reduce__()[1][0])


def _cached_function(writer: DigestWriter, value: Any, label: str) -> None:
    """Write a function with a cache as what it wraps; answers in the cache must follow from its arguments alone."""
    outside = read_outside(value.__wrapped__)
    if outside:
        writer.refuse(f"{label} remembers answers, and reads {outside}, which may have been different then")
    writer.value(value.__wrapped__, label)


# What an instance's cache of properties holds follows from the rest; typing keeps the alias a class was called through.
_INSTANCE_CACHES = frozenset({"__orig_class__"})

_CACHED_FUNCTION = type(functools.lru_cache(len))
_DISPATCHED = type(np.concatenate)
_FIELD = type(vars(collections.namedtuple("_Pair", "first"))["first"])

CONTENTS: dict[type, Content] = {
    object: _nothing,
    bool: _constant(bool),
    int: _constant(int),
    float: _constant(float),
    complex: _constant(complex),
    str: _constant(str),
    bytes: _constant(bytes),
    tuple: _tuple,
    list: _sequence,
    collections.deque: _sequence,
    set: _set,
    frozenset: _set,
    dict: _mapping,
    collections.OrderedDict: _mapping,
    collections.Counter: _mapping,
    collections.defaultdict: _default_mapping,
    types.MappingProxyType: _mapping,
    bytearray: _bytearray,
    range: _attributes("start", "stop", "step"),
    np.ndarray: _array,
    np.generic: _scalar,
    np.dtype: _dtype,
    np.ufunc: named,
    _DISPATCHED: named,
    types.BuiltinFunctionType: _builtin,
    types.MethodType: _attributes("__func__", "__self__"),
    types.MethodWrapperType: _attributes("__name__", "__self__"),
    types.WrapperDescriptorType: _descriptor,
    types.MethodDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.GetSetDescriptorType: _descriptor,
    types.MemberDescriptorType: _descriptor,
    _FIELD: _field_of_named_tuple,
    staticmethod: _attributes("__func__"),
    classmethod: _attributes("__func__"),
    property: _attributes("fget", "fset", "fdel"),
    functools.cached_property: _attributes("func"),
    functools.partial: _attributes("func", "args", "keywords"),
    _CACHED_FUNCTION: _cached_function,
    types.SimpleNamespace: _attributes("__dict__"),
    types.NotImplementedType: _nothing,
    types.GenericAlias: _shown,
    types.UnionType: _shown,
    typing.TypeVar: _shown,
    re.Pattern: _attributes("pattern", "flags"),
    pathlib.PurePath: _path,
    logging.Logger: _logger,
    DType: _constant(str),
    type(dataclasses.MISSING): _nothing,
    dataclasses.Field: _attributes("name", "default", "default_factory", "init", "kw_only", "compare", "metadata"),
}
"""What a kind of value consists of, beside the attributes of a class of the user's that extends it."""

_SEALED = frozenset({np.generic, np.dtype, pathlib.PurePath, logging.Logger, dataclasses.Field})
"""Kinds whose subclasses in libraries add nothing."""
