"""Python names that the body of a device loop binds again: whether a value is lost by tracing the body once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

from nki.core.errors import FrontendError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import Location, here
from nki.spec.rule import Finding
from nki.spec.sink import Sink

_FILLED = (list, dict, set)
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
        self._containers = Containers(self._before)

    def check(self, sink: Sink) -> None:
        """Raise FrontendError "loop.carried" if the body bound one of them to another value; warn if it filled one."""
        self._containers.check(sink)
        for name, before in self._before.items():
            after = _content(self._cells[name])
            if before is not _EMPTY and after is not _EMPTY and is_lost(before, after):
                raise lost(name, after, "outside of the body")


class Containers:
    """What the lists, dictionaries and sets among some names held before a body ran."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._held = [(name, value, _members(value)) for name, value in values.items() if isinstance(value, _FILLED)]

    def check(self, sink: Sink, where: Location | None = None) -> None:
        """Warn "loop.filled" of what the body put into one of them or took away, but for tensors, which it may keep.

        In eager mode the body runs in every trip, so that what it collects is what a debugger would show.
        """
        for name, container, before in [] if sink.eager else self._held:
            known = {id(member) for member in before}
            changed = [member for member in _members(container) if id(member) not in known]
            fewer = len(_members(container)) < len(before)
            if fewer or any(not isinstance(member, NkiTensor) for member in changed):
                sink.report(_filled(name, container, where or here()))


def _members(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def _filled(name: str, container: Any, where: Location) -> Finding:
    return Finding(
        "loop.filled",
        "warning",
        f"{name}, a {type(container).__name__} from outside of a device loop, is changed in its body, which is traced "
        "once for all trips",
        "what one trip leaves to the next, or to what follows, is in tensors and registers",
        "nki/api/nki/language/__init__.py fori_loop",
        "count in a register (nisa.register_move), write to a tensor, or use a Python range loop, whose body runs for "
        "each trip",
        where,
        {"name": name},
    )


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
