"""Calls as before NKI 0.2, when instructions had no `dst` and returned their result: recognised, and written anew."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from nki.core.errors import ArgumentError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import Frame, here
from nki.core.syntax import parsed
from nki.spec.implicit import Tile, tile_for
from nki.spec.operand import PSUM, Operand

_GONE = ("dtype", "mask")
"""Keywords of that time, for which `dst` and slices stand today."""

_NUMBER = (bool, int, float)


class Functional(NamedTuple):
    """A call whose arguments fit an instruction if a `dst` is put before them.

    Attributes:
        certain: whether they do not fit without it, or the result of the call is used.
        call: the call with `dst`, as one would write it today.
        place: how to allocate `dst`.
        initial: for registers, the constant that one starts with instead; else empty.
        inputs: the arguments, by name.
        gone: the keywords `dtype` and `mask`, if given.
    """

    certain: bool
    call: str
    place: str
    initial: str = ""
    inputs: Mapping[str, Any] = MappingProxyType({})
    gone: Mapping[str, Any] = MappingProxyType({})

    def tile(self, name: str) -> Tile | None:
        """The destination that the instruction `name` gets; None where it has to be written."""
        if not self.certain or self.gone.get("mask") is not None:
            return None
        return tile_for(name, self.inputs, self.gone.get("dtype"))

    def error(self, label: str) -> ArgumentError:
        """The error for such a call of the instruction `label`."""
        return ArgumentError(
            "call.destination",
            f"{label} is called without dst",
            rule="since NKI 0.2 dst comes first, and instructions write into it: they return no tensor",
            source="nki/migration/index.rst, All ISA functions require a destination parameter",
            fix=f"write result = nisa.register_alloc({self.initial}), a new register that holds it"
            if self.initial
            else f"allocate the result with {self.place}, and write {self.call}",
        )


def functional(
    label: str,
    signature: inspect.Signature,
    operands: Mapping[str, Operand],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Functional | None:
    """What a call that was refused would be with `dst`; None if that makes no sense of it either.

    Args:
        label: what the kernel calls, such as ``nisa.activation``.
        signature, operands: of the instruction.
        args, kwargs: of the call.
    """
    if "dst" in kwargs or next(iter(signature.parameters), "") != "dst":
        return None
    kept = {name: value for name, value in kwargs.items() if name not in _GONE}
    try:
        inputs = signature.bind(None, *args, **kept).arguments
        today = signature.bind_partial(*args, **kept).arguments
    except TypeError:
        return None
    del inputs["dst"]
    if not all(_fits(value, operands[name]) for name, value in inputs.items()):
        return None
    fits = all(_fits(value, operands[name], today=True) for name, value in today.items())
    texts = _texts([*inputs][: len(args)])
    written = ", ".join(f"{name}={texts.get(name) or _shown(value)}" for name, value in inputs.items())
    return Functional(
        not args or not fits or _is_used(here().frame),
        f"{label}(dst=result, {written})",
        _place(operands["dst"]),
        _initial(operands, inputs, texts),
        inputs,
        {name: kwargs[name] for name in _GONE if name in kwargs},
    )


def _place(dst: Operand) -> str:
    if dst.kind == "register":
        return "nisa.register_alloc()"
    return "nl.ndarray(..., buffer=nl.psum)" if dst.regions == PSUM else "nl.ndarray"


def _initial(operands: Mapping[str, Operand], inputs: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """The number of an instruction that moves one into a register; empty for all others."""
    if operands["dst"].kind != "register" or len(inputs) != 1:
        return ""
    ((name, value),) = inputs.items()
    return texts.get(name, repr(value)) if isinstance(value, int) and not isinstance(value, bool) else ""


def _fits(value: Any, operand: Operand, *, today: bool = False) -> bool:
    """Whether a value is of the kind of an operand; `today`, a tensor is also where a destination can be."""
    if value is None:
        return operand.kind != "tensor"
    match operand.kind:
        case "tensor":
            return isinstance(value, NkiTensor) and not (
                today and operand.writes and value.buffer not in operand.regions
            )
        case "column" | "tensor_or_number":
            return isinstance(value, (NkiTensor, *_NUMBER))
        case "register":
            return isinstance(value, VirtualRegister)
        case "operator":
            return callable(value)
        case "enum":
            return isinstance(value, operand.choices or ())
        case "int" | "number" | "flag":
            return isinstance(value, _NUMBER)
    return not isinstance(value, NkiTensor)


def _is_used(frame: Frame | None) -> bool:
    """Whether the line says something before the call, such as ``y =``: it is no statement of its own."""
    before = "" if frame is None else linecache.getline(frame.file, frame.line)[: frame.column].strip()
    return bool(before) and before[-1] not in ":;"


def _texts(placed: list[str]) -> dict[str, str]:
    """The arguments of the call as the user wrote them, by name; `placed` names those that are given by position."""
    call = _call(here().frame)
    if call is None or any(isinstance(value, ast.Starred) for value in call.args):
        return {}
    values = {word.arg: word.value for word in call.keywords if word.arg is not None}
    return {
        name: ast.unparse(value) for name, value in {**dict(zip(placed, call.args, strict=False)), **values}.items()
    }


def _shown(value: Any) -> str:
    """A value whose text in the call is not known, as part of a call."""
    if isinstance(value, (str, *_NUMBER)):
        return repr(value)
    return "..." if isinstance(value, NkiTensor) else shown(value)


def _call(frame: Frame | None) -> ast.Call | None:
    """The call expression that a frame points at."""
    if frame is None or not frame.end_line:
        return None
    lines = [linecache.getline(frame.file, number) for number in range(frame.line, frame.end_line + 1)]
    lines[-1] = lines[-1][: frame.end_column]
    text = "".join([lines[0][frame.column :], *lines[1:]])
    try:
        found = parsed(f"({text})", mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) else None
