"""Arguments and results as trees: which leaves are tensors, which are constants, and a key that tells calls apart."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import FunctionType, NoneType
from typing import Any, NamedTuple

import numpy as np

from nki.core.calls import Misfit, misfit, spelled
from nki.core.dtypes import DType, find
from nki.core.errors import ArgumentError
from nki.core.locks import cached_property
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import NKIObject
from nki.frontend.host import HostArray, Kind, kind_of, take

MakeTensor = Callable[[HostArray, str], NkiTensor]
SeeArray = Callable[[Any, Kind, str], HostArray]

CONSTANTS = frozenset({NoneType, bool, int, float, str, DType})
"""Types whose values are what they are: neither arrays nor trees, and nothing behind them."""

_COLLECTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Arguments by parameter name, defaults included; a call that does not fit is an ArgumentError."""
    plain = _bound_at_once(function, args, kwargs)
    if plain is not None:
        return plain
    signature = inspect.signature(function)
    found = misfit(signature, args, kwargs)
    if found is not None:
        raise ArgumentError(
            "call.kernel-arguments",
            f"{name}({spelled(signature)}) {found.message}",
            rule=_METHOD if _is_method(function) else "",
            fix=_fix(function, found),
            facts={"kind": found.kind, "names": ", ".join(found.names)},
        )
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


_METHOD = "a kernel is a function: what is called through an object does not get the object"


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether a class has it, and it wants the object."""
    inside = getattr(function, "__qualname__", "").rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), "")
    return bool(inside) and not inside.endswith("<locals>") and first == "self"


def _fix(function: Callable[..., Any], found: Misfit) -> str:
    if _is_method(function):
        return "remove self and define the kernel outside of the class, or under @staticmethod above @nki.jit"
    return f"pass {' and '.join(found.names)}" if found.kind == "missing" else found.fix


def _bound_at_once(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What `bind` returns, from the function itself; None for whatever is not plain, and for every misfit.

    `inspect` takes longer than a small kernel runs. Nothing is remembered, so that changed defaults are seen.
    """
    if type(function) is not FunctionType or function.__dict__:
        return None  # a wrapper may show the signature of another function
    code = function.__code__
    count = code.co_argcount
    if code.co_flags & _COLLECTS or code.co_posonlyargcount or len(args) > count:
        return None
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    bound = dict(zip(names, args, strict=False))
    defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
    taken, first = 0, count - len(defaults)
    for position in range(len(args), len(names)):
        name = names[position]
        if name in kwargs:
            bound[name] = kwargs[name]
            taken += 1
        elif first <= position < count:
            bound[name] = defaults[position - first]
        elif position >= count and name in keywords:
            bound[name] = keywords[name]
        else:
            return None
    return bound if taken == len(kwargs) else None


class Parameters(Mapping[str, inspect.Parameter]):
    """The parameters of a function by name, found when the first one is asked for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _found(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self._function).parameters

    def __getitem__(self, name: str) -> inspect.Parameter:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def leaves_of(values: Iterable[Any]) -> Iterator[Any]:
    """What trees of arguments hold beside trees, as `Arguments` takes them apart; trees may hold themselves."""
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if type(value) in CONSTANTS:
            yield value
        elif isinstance(value, list | tuple | dict) or is_record(value):
            if id(value) not in seen:
                seen.add(id(value))
                within = value if isinstance(value, list | tuple) else _items_of(value).values()
                waiting.extend(within)
        else:
            yield value


def map_leaves(value: Any, change: Callable[[Any], Any], within: tuple[int, ...] = ()) -> Any:
    """A tree of the same form with something else in the place of each leaf, changed from left to right.

    Args:
        within: the containers around it, by identity; what contains itself is left as it is there.
    """
    if id(value) in within or not (isinstance(value, list | tuple | dict) or is_record(value)):
        return change(value)
    inside = (*within, id(value))
    if isinstance(value, dict):
        return {key: map_leaves(item, change, inside) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [map_leaves(item, change, inside) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    made = copy.copy(value)
    for key, item in fields_of(value).items():
        object.__setattr__(made, key, map_leaves(item, change, inside))
    return made


def _items_of(tree: Any) -> Mapping[Any, Any]:
    return tree if isinstance(tree, dict) else fields_of(tree)


class Arguments:
    """The arguments of one call: host arrays in order, and a way to build the kernel's own copies.

    Attributes:
        plain: whether every argument is an array or one of `CONSTANTS`.
    """

    def __init__(
        self, bound: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], see: SeeArray = take
    ) -> None:
        """`see` makes a host array of a framework's one."""
        self.bound = bound
        self._see = see
        self.arrays: list[HostArray] = []
        self.names: list[str] = []
        self.plain = True
        self._seen: dict[int, int] = {}
        self._open: list[int] = []
        self._parameters = parameters
        self._tree: dict[str, Any] = {}
        for name, value in bound.items():  # every call comes here: no more than these two types need to be quick
            kind = type(value)
            if kind is np.ndarray:
                self._tree[name] = self._leaf(value, "numpy", name)
            else:
                self._tree[name] = value if kind in CONSTANTS else self._strip(value, name)

    def build(self, make: MakeTensor) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments with a tensor in place of every array; objects are fresh copies."""
        tensors = [make(host, name) for host, name in zip(self.arrays, self.names, strict=True)]
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, tree in self._tree.items():
            value = _fill(tree, tensors)
            kind = self._parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    def key(self) -> Hashable:
        """Shapes, dtypes and constants: equal keys may share a compiled kernel."""
        parts: list[Hashable] = []
        for _, _, array, dtype, _ in self.arrays:
            parts.append((array.shape, dtype))
        for name, tree in self._tree.items():
            parts.append(name)
            parts.append(tree if type(tree) is _ArrayLeaf else _key(tree))
        return tuple(parts)

    def _strip(self, value: Any, name: str) -> Any:
        if type(value) in CONSTANTS:
            return value
        kind = "numpy" if type(value) is np.ndarray else kind_of(value)
        if kind is not None:
            return self._leaf(value, kind, name)
        self.plain = False
        if isinstance(value, NkiTensor):
            raise ArgumentError(
                "argument.tensor",
                f"argument {name} is a tensor of another kernel",
                fix="return it from that kernel and pass the result",
            )
        if isinstance(value, np.generic):
            return value.item() if value.dtype.kind in "iufb" else value
        if not isinstance(value, list | tuple | dict) and not is_record(value):
            return value
        if id(value) in self._open:
            raise ArgumentError(
                "argument.recursive",
                f"argument {name} contains itself",
                rule="arguments are trees of tensors and constants",
                fix="pass what the kernel needs of it",
            )
        self._open.append(id(value))
        made = self._strip_container(value, name)
        self._open.pop()
        return made

    def _strip_container(self, value: Any, name: str) -> Any:
        match value:
            case list():
                return [self._strip(item, f"{name}[{i}]") for i, item in enumerate(value)]
            case tuple() if hasattr(value, "_fields"):
                return type(value)(
                    *(self._strip(item, f"{name}.{f}") for f, item in zip(value._fields, value, strict=True))
                )
            case tuple():
                return tuple(self._strip(item, f"{name}[{i}]") for i, item in enumerate(value))
            case dict():
                return {key: self._strip(item, f"{name}[{key!r}]") for key, item in value.items()}
        return self._strip_record(value, name)

    def _strip_record(self, value: Any, name: str) -> Any:
        fields = {key: self._strip(item, f"{name}.{key}") for key, item in fields_of(value).items()}
        return _Record(value, fields)

    def _leaf(self, value: Any, kind: Any, name: str) -> _ArrayLeaf:
        arrays = self.arrays
        number = self._seen.setdefault(id(value), len(arrays))
        if number == len(arrays):
            arrays.append(_as_it_is(value) or self._see(value, kind, name))
            self.names.append(name if name.isidentifier() else _identifier(name))
        return _LEAVES[number] if number < len(_LEAVES) else _ArrayLeaf(number)


def _identifier(path: str) -> str:
    return path.replace("[", "_").replace("]", "").replace(".", "_").replace("'", "")


def _as_it_is(value: Any) -> HostArray | None:
    """What `take` makes of a NumPy array whose memory a kernel can use; None for everything else."""
    if type(value) is not np.ndarray or value.ndim == 0 or value.size == 0:
        return None
    flags, found = value.flags, _device_dtype(value.dtype)
    if found is None or not flags.c_contiguous or not flags.writeable:
        return None
    return _new_tuple(HostArray, ("numpy", value, value, found, True))


@functools.lru_cache(maxsize=64)  # asked for every argument of every call
def _device_dtype(dtype: np.dtype[Any]) -> DType | None:
    found = find(dtype) if dtype.isbuiltin else None
    return found if found is not None and found.device else None


_new_tuple = tuple.__new__
"""Makes a named tuple in half the time."""


class _ArrayLeaf(NamedTuple):
    """Stands for the array of this number."""

    number: int


_LEAVES = [_ArrayLeaf(number) for number in range(32)]
"""The first ones, which every call needs."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Record:
    """Stands for an object whose attributes may hold arrays."""

    original: Any
    fields: dict[str, Any]


class _Itself:
    """A value without hash as a key; it lives as long as the key, so that no other one gets its identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value


def is_record(value: Any) -> bool:
    """Whether it is an object whose attributes may hold arrays."""
    return isinstance(value, NKIObject) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def fields_of(value: Any) -> dict[str, Any]:
    """The attributes of such an object, by name."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _fill(tree: Any, tensors: list[NkiTensor]) -> Any:
    match tree:
        case _ArrayLeaf(number):
            return tensors[number]
        case _Record(original, fields):
            made = copy.copy(original)
            for key, item in fields.items():
                object.__setattr__(made, key, _fill(item, tensors))
            return made
        case list():
            return [_fill(item, tensors) for item in tree]
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(_fill(item, tensors) for item in tree))
        case tuple():
            return tuple(_fill(item, tensors) for item in tree)
        case dict():
            return {key: _fill(item, tensors) for key, item in tree.items()}
    return tree


def _key(tree: Any) -> Hashable:
    kind = type(tree)
    if kind is _ArrayLeaf:
        return tree  # no other part of a key is one number in a tuple
    if kind in (int, str, bool, NoneType, DType):
        return kind.__name__, tree
    match tree:
        case _Record(original, fields):
            return (type(original), tuple((k, _key(v)) for k, v in fields.items()))
        case list() | tuple():
            return (type(tree).__name__, tuple(_key(item) for item in tree))
        case dict():
            return ("dict", tuple((k, _key(v)) for k, v in tree.items()))
        case bool() | int() | float() | str() | None | enum.Enum() | DType():
            return (type(tree).__name__, repr(tree) if isinstance(tree, float) else tree)
        case set() | frozenset():
            return (type(tree).__name__, frozenset(_key(item) for item in tree))
        case bytearray():
            return ("bytearray", bytes(tree))
    try:
        hash(tree)
    except TypeError:
        return _Itself(tree)
    return tree if callable(tree) or isinstance(tree, type) else ("value", tree)
