"""From what a kernel wrote to what an instruction carries: one small function per kind of operand."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nki.core.dims import check_not_empty
from nki.core.errors import ArgumentError, FrontendError
from nki.core.lists import is_numbers, tensor_fix
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import GENERATED
from nki.core.tensor import View
from nki.spec.no_tensor import PASS_DST
from nki.spec.older_operator import named_operator
from nki.spec.operand import Operand
from nki.spec.operator import Operator
from nki.spec.program import Issued
from nki.spec.replica_group import ReplicaGroup
from nki.spec.signature import Key, Seen, add, parts_of
from nki.spec.sink import Sink

Converter = Callable[[Any, str, Operand, Sink], Any]


def _tensor(value: Any, name: str, operand: Operand, sink: Sink) -> View:
    if type(value) is NkiTensor or isinstance(value, NkiTensor):
        view = value.view_record
        if view.buffer.trace is not sink.trace:
            raise escaped(value, name)
        if not view.on_chip:
            check_not_empty(view, name)
        return view
    raise _kind(value, name, "a tensor", _tensor_fix(value, name, operand.writes))


def escaped(tensor: NkiTensor, name: str) -> FrontendError:
    """The error for a tensor that belongs to another kernel call."""
    return FrontendError(
        "tensor.escaped",
        f"{name} is tensor {tensor.name!r} of another kernel call, which has ended",
        rule="a tensor lives only in the kernel call that allocated it",
        fix="return it from that kernel, and pass the result as an argument to this one",
    )


def _column(value: Any, name: str, operand: Operand, sink: Sink) -> View | float | int:
    if isinstance(value, NkiTensor):
        return _tensor(value, name, operand, sink)
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return value.item() if isinstance(value, np.generic) else value
    raise _kind(value, name, "a number or a tensor", "pass a float, or an SBUF tensor with one element per partition")


def _tensors(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[View, ...]:
    if isinstance(value, list | tuple) and value:
        return tuple(_tensor(item, f"{name}[{i}]", operand, sink) for i, item in enumerate(value))
    raise _kind(value, name, "a non-empty list of tensors", f"pass {name}=[tensor, ...]")


def _operator(value: Any, name: str, operand: Operand, sink: Sink) -> Operator:
    return named_operator(value, name, operand.example)


def _enum(value: Any, name: str, operand: Operand, sink: Sink) -> Any:
    choices = operand.choices
    assert choices is not None, "an enum operand names its enumeration"
    if isinstance(value, choices):
        return value
    if isinstance(value, str | int) and not isinstance(value, bool) and value in [m.value for m in choices]:
        member = choices(value)
        spelled = f"nisa.{choices.__name__}.{member.name}"
        warnings.warn(f"{name}={value!r} is deprecated; write {spelled}", DeprecationWarning, stacklevel=5)
        return member
    names = ", ".join(f"nisa.{choices.__name__}.{member.name}" for member in choices)
    raise _kind(value, name, f"a member of nisa.{choices.__name__}", f"use one of {names}")


def _flag(value: Any, name: str, operand: Operand, sink: Sink) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _kind(value, name, "True or False", f"pass {name}=True or {name}=False")


def _int(value: Any, name: str, operand: Operand, sink: Sink) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise _kind(value, name, "an int", "compute it in Python from shapes and constants")


def _number(value: Any, name: str, operand: Operand, sink: Sink) -> float | int:
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return value.item() if isinstance(value, np.generic) else value
    raise _kind(value, name, "a number", "pass a Python number")


def _ints(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[int, ...]:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return (int(value),)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_int(item, f"{name}[{i}]", operand, sink) for i, item in enumerate(value))
    raise _kind(value, name, "an int or a sequence of ints", f"pass ints, for example {name}=(0, 1)")


def _numbers(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[float | int, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_number(item, f"{name}[{i}]", operand, sink) for i, item in enumerate(value))
    raise _kind(value, name, "a sequence of numbers", f"pass {name}=[1.0]")


def _pattern(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[tuple[int, int], ...]:
    try:
        return tuple((int(step.__index__()), int(count.__index__())) for step, count in value)
    except FrontendError:
        raise
    except (TypeError, ValueError, AttributeError):
        raise _kind(value, name, "a list of [step, count] pairs", f"pass {name}=[[1, count]]") from None


def _text(value: Any, name: str, operand: Operand, sink: Sink) -> str:
    if isinstance(value, str):
        return value
    raise _kind(value, name, "a string", f"pass {name}='...'")


def _register(value: Any, name: str, operand: Operand, sink: Sink) -> VirtualRegister:
    if isinstance(value, VirtualRegister) and value.trace is sink.trace:
        return value.record
    raise _kind(value, name, "a register of this kernel", _register_fix(value))


def _register_fix(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"make one with nisa.register_alloc(); one that holds {value} is nisa.register_alloc({value})"
    if isinstance(value, NkiTensor):
        return "load one element with nisa.register_load(nisa.register_alloc(), tensor)"
    return "make one with nisa.register_alloc()"


def _register_or_int(value: Any, name: str, operand: Operand, sink: Sink) -> VirtualRegister | int:
    if isinstance(value, VirtualRegister):
        return _register(value, name, operand, sink)
    if isinstance(value, NkiTensor):
        raise _kind(value, name, "an int or a register", "load one element with nisa.register_load(dst, src=tensor)")
    if isinstance(value, float | np.floating):
        raise _kind(value, name, "an int or a register", "round it in Python: registers hold 32-bit integers")
    return _int(value, name, operand, sink)


def _channels(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[View, ...]:
    """One tensor for each channel, out of a list for each channel."""
    if isinstance(value, list | tuple) and value and all(isinstance(i, list | tuple) and len(i) == 1 for i in value):
        return tuple(_tensor(item[0], f"{name}[{i}][0]", operand, sink) for i, item in enumerate(value))
    raise _kind(value, name, "a list with a list of one tensor for each channel", f"pass {name}=[[tensor]]")


def _ranks(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[tuple[int, ...], ...]:
    if isinstance(value, ReplicaGroup):
        return value.ranks()
    raise _kind(value, name, "a ReplicaGroup", f"pass {name}=nki.collectives.ReplicaGroup([[0, 1]])")


def _rank_pairs(value: Any, name: str, operand: Operand, sink: Sink) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple((int(a.__index__()), int(b.__index__())) for a, b in value)
    except (TypeError, ValueError, AttributeError):
        raise _kind(value, name, "a list of (source, target) ranks", f"pass {name}=[(0, 1), (1, 0)]") from None


CONVERTERS: dict[str, Converter] = {
    "tensor": _tensor,
    "column": _column,
    "tensor_or_number": _column,
    "tensors": _tensors,
    "operator": _operator,
    "enum": _enum,
    "flag": _flag,
    "int": _int,
    "number": _number,
    "ints": _ints,
    "numbers": _numbers,
    "pattern": _pattern,
    "text": _text,
    "register": _register,
    "register_or_int": _register_or_int,
    "channels": _channels,
    "ranks": _ranks,
    "rank_pairs": _rank_pairs,
}


class Parameter(NamedTuple):
    """A parameter of an instruction.

    Attributes:
        name, operand: as declared.
        default: its default, or the mark for none that `inspect` has.
        optional: whether it may be None.
    """

    name: str
    operand: Operand
    default: Any
    optional: bool

    @property
    def as_declared(self) -> bool:
        """Whether a default stands for itself, so that a declaration may use one that no caller could pass."""
        return self.operand.kind in _AS_DECLARED


Prepare = Callable[[Sequence[Any], Sink], tuple[Any, Key | None]]
"""From bound values to the arguments as the record has them, and what the signature depends on, a `signature.Key`."""

_AS_DECLARED = frozenset({"enum", "flag", "int", "number", "text", "column", "ints"})
_MEASURED = frozenset({"tensor", "column", "tensor_or_number", "number"})
_IN_LINE = _MEASURED | {"operator", "enum", "flag", "int", "ints", "pattern"}


def prepare_of(instruction: Hashable, made: type, parameters: Sequence[Parameter]) -> Prepare:
    """The conversion of all arguments of an instruction; `made` is the class of the named tuple that they become."""
    if all(parameter.operand.kind in _IN_LINE or parameter.name == "name" for parameter in parameters):
        return _straight(instruction, made, parameters)

    def prepare(values: Sequence[Any], sink: Sink) -> tuple[Any, Key | None]:
        key: list[Any] = [instruction, id(sink.target)]
        seen: Seen = {}
        static, arguments = True, []
        for value, parameter in zip(values, parameters, strict=True):
            name, operand, default, optional = parameter
            if (value is None and optional) or (value is default and parameter.as_declared):
                arguments.append(value)
                key.append(id(value))
                continue
            arguments.append(CONVERTERS[operand.kind](value, name, operand, sink))
            if name != "name":
                static = add(key, arguments[-1], seen) and static
        return tuple.__new__(made, arguments), tuple(key) if static else None

    return prepare


def _straight(instruction: Hashable, made: type, parameters: Sequence[Parameter]) -> Prepare:
    """The conversion as one function without a loop, since that runs for every instruction that a kernel issues.

    Line by line it does what the converters do, as long as a value is what kernels mostly pass, and calls them for
    every other one.
    """
    names: dict[str, Any] = {"make": tuple.__new__, "made": made, "instruction": instruction, "parts_of": parts_of}
    names |= {"NkiTensor": NkiTensor, "Operator": Operator, "named_operator": named_operator}
    lines, entries = [], ["instruction", "id(sink.target)"]
    measured: list[int] = []
    for i, parameter in enumerate(parameters):
        kind = parameter.operand.kind
        names |= {f"convert{i}": CONVERTERS[kind], f"operand{i}": parameter.operand, f"default{i}": parameter.default}
        names[f"choices{i}"] = parameter.operand.choices
        if kind in _MEASURED:
            lines += _measured(i, parameter, measured)
            entries += [f"d{i}, s{i}, t{i}, o{i}, l{i}", *_which(i, measured)]
            measured.append(i)
        else:
            lines += _constant(i, parameter)
            entries += _ENTRIES[kind](f"v{i}")
    values = "".join(f"v{i}, " for i in range(len(parameters)))
    static = " is ".join([*(f"y{i}" for i in measured), "None"]) if measured else "True"
    result = f"return make(made, ({values})), ({', '.join(entries)}) if {static} else None"
    body = "\n    ".join([f"{values}= values", "trace = sink.trace", *lines, result])
    exec(compile(f"def prepare(values, sink):\n    {body}\n", GENERATED, "exec"), names)
    prepare: Prepare = names["prepare"]
    return prepare


_ENTRIES: dict[str, Callable[[str], list[str]]] = {
    "operator": lambda value: [f"id({value})"],
    "enum": lambda value: [f"id({value})"],
    "flag": lambda value: [f"id({value})"],
    "int": lambda value: [f"type({value})", value],
    "ints": lambda value: [value],
    "pattern": lambda value: [value],
    "text": lambda _: [],
}
"""What of a constant counts, by its kind; nothing reads a name, the only text."""

_AS_PASSED = {
    "operator": "type(v{i}) is Operator",
    "enum": "type(v{i}) is choices{i}",
    "flag": "v{i} is True or v{i} is False",
    "int": "type(v{i}) is int",
}


def _converted(i: int, parameter: Parameter, *same: str) -> str:
    """The statement that converts a value unless it may stay: None, the default, or one of the other cases."""
    name, kind = parameter.name, parameter.operand.kind
    if parameter.optional:
        same = (*same, f"v{i} is None")
    if parameter.as_declared and parameter.default is not inspect.Parameter.empty and parameter.default is not None:
        same = (*same, f"v{i} is default{i}")
    call = f"convert{i}(v{i}, {name!r}, operand{i}, sink)"
    if kind == "operator":
        call = f"named_operator(v{i}, {name!r}, operand{i}.example)"
    stays = " or ".join(same)
    return f"v{i} = v{i} if {stays} else {call}" if same else f"v{i} = {call}"


def _constant(i: int, parameter: Parameter) -> list[str]:
    """Lines for an operand that is no tensor and no number."""
    same = _AS_PASSED.get(parameter.operand.kind)
    return [_converted(i, parameter, *([] if same is None else [same.format(i=i)]))]


def _measured(i: int, parameter: Parameter, before: Sequence[int]) -> list[str]:
    """Lines for a tensor or a number, whose parts, as in `parts_of`, get variables of their own."""
    kind = parameter.operand.kind
    lines = []
    if kind != "number":
        lines += [
            f"if type(v{i}) is NkiTensor and v{i}._problem is None "
            f"and (b{i} := v{i}._view[0]).on_chip and b{i}.trace is trace:",
            f"    v{i} = v{i}._view",
            f"    b{i}, d{i}, s{i}, t{i}, o{i}, y{i} = v{i}",
            f"    l{i} = b{i}.layout",
        ]
    if kind != "tensor":
        none = f" or v{i} is None" if parameter.optional else ""
        lines += [
            f"{'elif' if lines else 'if'} (d{i} := type(v{i})) is float or d{i} is int{none}:",
            f"    s{i} = v{i} or (v{i}.hex() if d{i} is float else v{i})",
            f"    b{i} = t{i} = o{i} = y{i} = l{i} = None",
        ]
    earlier = "".join(f"v{j}, " for j in before)
    return [
        *lines,
        "else:",
        f"    {_converted(i, parameter)}",
        f"    b{i}, d{i}, s{i}, t{i}, o{i}, y{i}, l{i} = parts_of(v{i}, ({earlier}))",
    ]


def _which(i: int, before: Sequence[int]) -> list[str]:
    """Which tensor before it is in the same buffer; numbers count as one, which says no more than their parts."""
    cases = "".join(f"{j} if b{i} is b{j} else " for j in before)
    return [f"{cases}{i}"] if before else []


def _tensor_fix(value: Any, name: str, written: bool = False) -> str:
    if isinstance(value, list | tuple) and is_numbers(value) and not written:
        return tensor_fix(name)
    if isinstance(value, list | tuple) and any(isinstance(item, NkiTensor) for item in value):
        return f"pass the tensors of {name} one by one"
    if isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] in ("torch", "jax", "jaxlib"):
        return "pass the array as an argument of the kernel, and load it with nisa.dma_copy"
    if isinstance(getattr(value, "issued", None), Issued):  # NkiInstruction is declared above
        return PASS_DST
    return "allocate with nl.ndarray and pass the tensor"


def _kind(value: Any, name: str, expected: str, fix: str) -> ArgumentError:
    return ArgumentError("operand.kind", f"{name} must be {expected}, not {shown(value)}", fix=fix)
