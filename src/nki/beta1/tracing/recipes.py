"""Recipes: the one instruction that a computation issued for operands, issued for others that look the same.

What a function of the language issues depends on what it was called with, and on how its operands lie in their
buffers: shapes, dtypes, strides, memories. A computation is known by its code and by what it captures, and operands by
what rules can read of them (`nki.spec.signature`). So the second call of its kind computes nothing. Its instruction
is legal, and waits for its destination (`nki.beta1.tracing.pending`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from nki.beta1.tensors.mask import Region
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.pending import Pending, blank, waiting
from nki.beta1.tracing.results import placed
from nki.beta1.tracing.session import Session, current
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, View
from nki.spec.program import Issued
from nki.spec.signature import Signature, add, add_view


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an instruction is made of operands.

    Attributes:
        issued: the instruction of the first call.
        signature: what it is known under.
        parts: for each argument that is a tensor its position, and the operand whose buffer it is in; None for the
            destination.
        operands: the operands of the first call.
        shape, dtype, region: of the tile that it makes.
    """

    issued: Issued
    signature: Signature
    parts: tuple[tuple[int, int | None], ...]
    operands: tuple[View | None, ...]
    shape: tuple[int, ...]
    dtype: DType
    region: MemoryRegion

    def of(self, session: Session, values: Sequence[Any]) -> Pending:
        """The instruction with other operands, before it has a destination."""
        instruction, arguments, _, engine = self.issued
        place = blank(session, self.shape, self.dtype, self.region).view_record
        changed = list(arguments)
        for position, number in self.parts:
            if number is None:
                changed[position] = place
                continue
            view, first, own = arguments[position], self.operands[number], values[number].view_record
            assert first is not None, "an operand with a buffer"
            moved = own.offset - first.offset + view.offset
            changed[position] = own if view == first else view._replace(buffer=own.buffer, offset=moved)
        location = session.tracer.locator.capture()
        issued = Issued(instruction, instruction.arguments._make(changed), location, engine)
        return Pending(session, issued, self.signature, place)


def computed(
    function: str,
    compute: Callable[..., NkiTensor],
    values: Sequence[Any],
    shape: tuple[int, ...] | None = None,
    region: Region | None = None,
    *,
    explicit: bool = False,
) -> Tensor:
    """The tile that a computation makes, as `nki.beta1.tracing.results.placed` has it.

    Args:
        compute: gets `values`, and issues what depends on them and on what it captures alone.
        values: tensors and numbers.
    """
    session = current(function)
    key = _key(session, function, compute, values)
    if key is None:
        return placed(function, lambda: compute(*values), shape, region, explicit=explicit)
    if key in session.recipes:
        recipe = session.recipes[key]
        if recipe is not None:
            session.settle()
            return waiting(recipe.of(session, values), shape, region, explicit=explicit)
        return placed(function, lambda: compute(*values), shape, region, explicit=explicit)
    told = len(session.tracer.findings)
    made = placed(function, lambda: compute(*values), shape, region, explicit=explicit)
    session.recipes[key] = _recipe(session, values) if len(session.tracer.findings) == told else None
    return made


def _key(session: Session, function: str, compute: Callable[..., Any], values: Sequence[Any]) -> Hashable:
    """What tells a computation from others; None where that is not known, or nothing waits."""
    tracer = session.tracer
    if tracer.eager or tracer.no_reorder_depth or tracer.options.disabled_rules or type(compute) is not FunctionType:
        return None
    key: list[Any] = [function]
    if not _add_function(key, compute):
        return None
    seen: dict[Any, tuple[int, int]] = {}
    for value in values:
        known = add_view(key, value.view_record, seen) if type(value) is NkiTensor else add(key, value, seen)
        if not known:
            return None
    return tuple(key)


def _add_function(key: list[Any], function: FunctionType) -> bool:
    """Append what tells a function from others: its code, what it captures, and its defaults."""
    function = getattr(function, "__wrapped__", function)  # checks of arguments, of functions of today's language
    key.append(id(function.__code__))  # it is a constant of a module of this package, and stays
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    for value in (*held, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if type(value) is FunctionType:
            if not _add_function(key, value):
                return False
        elif isinstance(value, type):
            key.append(value)
        elif not add(key, value, {}):
            return False
    return True


def _recipe(session: Session, values: Sequence[Any]) -> Recipe | None:
    """What the last value was made by, if that is one instruction, which writes all of a new tile."""
    last = session.last
    if last is None or last.end - last.start != 1:
        return None
    issued, made = session.items[-1], last.view
    if issued.instruction.effects(issued.arguments) or made.size * made.dtype.itemsize != made.buffer.nbytes:
        return None
    operands = tuple([value.view_record if type(value) is NkiTensor else None for value in values])
    buffers = [None if view is None else view.buffer for view in operands]
    parts: list[tuple[int, int | None]] = []
    for position, _ in issued.instruction.tensor_positions:
        value = issued.arguments[position]
        if value is None or type(value) in (int, float, bool):
            continue
        if type(value) is not View or (value != made and value.buffer not in buffers):
            return None
        parts.append((position, None if value == made else buffers.index(value.buffer)))
    found = issued.instruction.again(issued.arguments, issued.location, session.tracer)
    if found is None or found[1] is None or [number for _, number in parts].count(None) != 1:
        return None
    return Recipe(issued, found[1], tuple(parts), operands, made.shape, made.dtype, made.buffer.region)
