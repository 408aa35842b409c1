"""Python names that the body of a device loop binds again: whether a value is lost by tracing the body once."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from nki.core.errors import FrontendError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import Location

_CONSTANTS = (bool, int, float, str, bytes, tuple, type(None))


class Captured:
    """What the names around a body function held before it ran.

    Args:
        body: the function of a loop; a callable that is no Python function captures nothing.
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        function = body.__func__ if isinstance(body, MethodType) else body
        closure = (function.__closure__ or ()) if isinstance(function, FunctionType) else ()
        names = function.__code__.co_freevars if isinstance(function, FunctionType) else ()
        self._cells = dict(zip(names, closure, strict=True))
        self._before = {name: _content(cell) for name, cell in self._cells.items()}

    def check(self) -> None:
        """Raise FrontendError "loop.carried" if the body bound one of them to another value."""
        for name, before in self._before.items():
            after = _content(self._cells[name])
            if before is not _EMPTY and after is not _EMPTY and is_lost(before, after):
                raise lost(name, after, "outside of the body")


def is_lost(before: Any, after: Any) -> bool:
    """Whether a name that held `before` and now holds `after` would make a difference in the next trip."""
    if before is after:
        return False
    if isinstance(before, VirtualRegister) and isinstance(after, VirtualRegister):
        return before.record is not after.record
    constant = isinstance(before, _CONSTANTS) and type(before) is type(after)
    return not (constant and _equal(before, after))


def lost(name: str, value: Any, when: str, where: Location | None = None) -> FrontendError:
    """The error for a value that never reaches those who ask for it."""
    return FrontendError(
        "loop.carried",
        f"{name} is bound outside of a device loop, is bound to {_kind(value)} in its body, and is read {when}",
        rule="the body of a device loop is traced once, so a Python name cannot hand a value from trip to trip",
        source="nki/api/nki/language/__init__.py fori_loop",
        fix=_fix(name, value),
        location=where,
    )


_EMPTY = object()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return _EMPTY


def _equal(a: Any, b: Any) -> bool:
    """Members of a tuple may be tensors or registers, which have no truth of equality: those count by identity."""
    if isinstance(a, tuple):
        return len(a) == len(b) and not any(is_lost(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _kind(value: Any) -> str:
    return shown(value)


def _fix(name: str, value: Any) -> str:
    if isinstance(value, NkiTensor):
        copy = "nisa.tensor_copy" if value.buffer.on_chip else "nisa.dma_copy"
        return f"allocate one tensor before the loop, and write into it: {copy}(dst={name}, src=...)"
    if isinstance(value, VirtualRegister):
        return f"keep one register, and change what it holds: nisa.register_move({name}, ...)"
    return "count in a register (nisa.register_move) or in a tensor, or use a Python range loop"
