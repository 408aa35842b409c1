"""Forms: what instructions that differ in addresses only have in common, worked out once.

A form holds the records of its instructions with the addresses left open; an instruction then costs little more than
filling them in.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from typing import Any, NamedTuple

from nki.core.source import Location
from nki.core.tensor import Buffer, View
from nki.native.emit.function import emit
from nki.native.records.move_records import move_template
from nki.native.records.moves import Move, Product, depth_of, moves, operands_of
from nki.native.records.templates import Patch, Template, Unfit, column_slot, finished, header, row_slot
from nki.native.trace.symbolic_execution import NotTraceable, OperandSlot, trace
from nki.spec.program import Issued
from nki.target.model import Target

_MOST_FORMS = 1 << 14
_NUMPY_CALL = 1.5e-6
_NUMPY_ELEMENT = 0.4e-9
"""Seconds of one NumPy operation, and for each element of it; only to decide when compiling pays."""


class ViewSource(NamedTuple):
    """Where the view of a slot comes from.

    Attributes:
        argument, member: position among the arguments, and in a sequence of tensors (else -1).
        view: as the body sees it in the instruction that the form was made of.
        shift: elements that it begins behind the argument.
        same: whether it is the argument itself.
        writes: whether the body stores to it.
    """

    argument: int
    member: int
    view: View
    shift: int
    same: bool
    writes: bool

    def given(self, arguments: Any) -> View:
        """The argument that it is made of."""
        value = arguments[self.argument]
        view: View = value if self.member < 0 else value[self.member]
        return view

    def of(self, arguments: Any) -> View:
        """The view for the arguments of another instruction of the form."""
        given = self.given(arguments)
        if self.same:
            return given
        return self.view._replace(buffer=given.buffer, offset=given.offset + self.shift, dynamic=given.dynamic)


class Register(NamedTuple):
    """A slot of the accumulator registers of the running engine: "accumulator" holds values, "defined" notes."""

    path: str
    writes: bool


class Native(NamedTuple):
    """The record of a form.

    Attributes:
        sources: where the operand of each slot comes from.
        streaming: an operand that is read may be the very view that is written.
        may_refuse: the function may leave the instruction to NumPy, because a warning is due.
        move: what it does if it only moves or multiplies.
    """

    template: Template
    sources: tuple[ViewSource | Register, ...]
    streaming: bool
    may_refuse: bool = False
    move: Move | None = None


class Form:
    """How instructions of one kind are executed.

    Attributes:
        native: their record, or None if NumPy executes them.
        reason: why NumPy does.
        cost: seconds that NumPy takes for one instruction, as estimated.
        spent: seconds that NumPy took so far for all instructions that have the same function.
        function: address of the function that executes the record; 0 as long as it is not compiled.
        waited: who first left an instruction of it to NumPy, and where in the kernel.
    """

    __slots__ = ("_key", "cost", "function", "native", "reason", "waited")

    def __init__(self, native: Native | None, reason: str = "", cost: float = 0.0) -> None:
        self.native = native
        self.reason = reason
        self.cost = cost
        self.function = 0
        self.waited: tuple[int, int, Location] | None = None
        self._key = "" if native is None else native.template.name

    @property
    def spent(self) -> float:
        return _SPENT.get(self._key, 0.0)

    @spent.setter
    def spent(self, seconds: float) -> None:
        _SPENT[self._key] = seconds


Own = dict[int, tuple[int, int, View]]
"""By the identity of a buffer: the argument and member that it was made for, and the view of it."""

_SPENT: dict[str, float] = {}
"""By the name of a function: seconds that NumPy took in its place; one number each, which outlives `_FORMS`."""

_FORMS: dict[tuple[Any, ...], Form] = {}
"""Forms of instructions that are alike, for all kernels of the process; emptied at `_MOST_FORMS`."""


def form_of(issued: Issued, target: Target, matmul: str) -> Form:
    """The form of an instruction whose addresses are static; `matmul` as in `nki.options.Options`."""
    key = (issued.instruction, issued.engine, target.name, matmul, *[_key(value) for value in issued.arguments])
    found = _FORMS.get(key)
    if found is None:
        if len(_FORMS) >= _MOST_FORMS:
            _FORMS.clear()
        found = _FORMS[key] = _make(issued, target, matmul)
    return found


def _key(value: Any) -> Any:
    """What of an argument decides the form; 1, 1.0 and True are different arguments, and so are 0.0 and -0.0."""
    if type(value) is View:
        return value.dtype, value.shape, value.strides, value.buffer.region, value.buffer.row_bytes
    if type(value) is tuple or type(value) is list:
        return tuple([_key(item) for item in value])
    if type(value) is float:
        return "float", struct.pack("<d", value)
    return type(value), value


def _make(issued: Issued, target: Target, matmul: str) -> Form:
    own: Own = {}
    renamed = issued._replace(
        arguments=issued.arguments._make([_renamed(value, at, own) for at, value in enumerate(issued.arguments)])
    )
    elements = max([view.size for _, view in issued.views()], default=0)
    reason = ""
    for attempt in (_move, _row):
        try:
            native, operations = attempt(renamed, target, own, matmul)
            return Form(native, "", operations * (_NUMPY_CALL + elements * _NUMPY_ELEMENT))
        except NotTraceable as refusal:
            reason = str(refusal)
        except Unfit:
            return Form(None, "dimensions")
    return Form(None, reason)


def _renamed(value: Any, at: int, own: Own, member: int = -1) -> Any:
    """The argument with a buffer that no other argument has, so that the body's views tell where they come from."""
    if type(value) is tuple and any(type(item) is View for item in value):
        return tuple([_renamed(item, at, own, i) for i, item in enumerate(value)])
    if type(value) is not View:
        return value
    buffer: Buffer = replace(value.buffer)
    view = value._replace(buffer=buffer)
    own[id(buffer)] = (at, member, view)
    return view


def _source(view: View, own: Own, writes: bool) -> ViewSource:
    argument, member, given = own[id(view.buffer)]
    same = view == given
    if not same and view.dtype.itemsize != given.dtype.itemsize:
        raise NotTraceable("view of another size")
    return ViewSource(argument, member, view, view.offset - given.offset, same, writes)


def _move(issued: Issued, target: Target, own: Own, matmul: str) -> tuple[Native, int]:
    found = moves(issued, target)
    if len(found) != 1:
        raise NotTraceable("several moves")
    move = found[0]
    if isinstance(move, Product) and matmul == "blas":
        raise NotTraceable("blas")
    sources = tuple([_source(view, own, i == 0) for i, view in enumerate(operands_of(move))])
    operations = 8 * depth_of(move) if isinstance(move, Product) else 2
    return Native(move_template(move, matmul == "fast"), sources, False, move=move), operations


def _row(issued: Issued, target: Target, own: Own, matmul: str) -> tuple[Native, int]:
    traced = trace(issued, target)
    words = header(traced.partitions, traced.count)
    sources: list[ViewSource | Register] = []
    patches = []
    for item in traced.slots:
        slot, patch = _slot(item, len(words))
        words += slot
        patches.append(patch)
        writes = item.mode == "write"
        sources.append(Register(item.path, writes) if item.view is None else _source(item.view, own, writes))
    name = "row_" + hashlib.sha256(traced.signature.encode()).hexdigest()[:32]
    template = Template(name, lambda: emit(traced, name), finished([*words, *traced.immediates]), tuple(patches))
    return Native(template, tuple(sources), traced.streaming, bool(traced.bad)), traced.operations


def _slot(item: OperandSlot, at: int) -> tuple[list[int], Patch]:
    return column_slot(4, at) if item.view is None else row_slot(item.view, at)
