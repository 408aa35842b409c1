"""``for i in nl.dynamic_range(...)`` and ``while register:`` as regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from nki.core.errors import FrontendError
from nki.core.register import VirtualRegister, not_a_condition
from nki.core.source import Location
from nki.frontend.loops.loop_carried import Carried
from nki.frontend.loops.regions import LoopRegion, Regions, left
from nki.frontend.loops.statements import Statement, for_statement, has_source, while_statement
from nki.isa.register import register_alloc, register_move
from nki.language.rebound import lost
from nki.spec.program import ForLoop


def trips(open_for: Callable[[], LoopRegion], frame: FrameType, where: Location) -> Iterator[VirtualRegister]:
    """The iterator of a ``for`` statement: the index, once for every pass over the body.

    Raises:
        FrontendError: before the first pass, "loop.dynamic-range" if no ``for`` statement asks, "loop.source" if its
            source cannot be read, "loop.escape"; after the first one, "loop.carried".
    """
    statement = for_statement(frame)
    if statement is None:
        raise _no_source(where) if not has_source(frame) else _not_a_statement(where)
    statement.check_body(where)
    region = open_for()
    carried = Carried(statement, frame) if region.recording else None
    return _trips(region, carried, where)


def _trips(region: LoopRegion, carried: Carried | None, where: Location) -> Iterator[VirtualRegister]:
    assert isinstance(region.loop, ForLoop), "a for statement runs a for loop"
    while region.next_trip():
        yield region.loop.index
        if carried is not None and region.trips == 1:
            carried.check(where)


@dataclass(frozen=True, slots=True)
class _While:
    """A ``while`` statement that runs, and the frame that runs it."""

    statement: Statement
    frame: FrameType
    region: LoopRegion
    condition: VirtualRegister
    carried: Carried | None
    where: Location

    def is_at(self, statement: Statement, frame: FrameType) -> bool:
        return self.frame is frame and self.statement is statement


class Conditions:
    """Answers truth tests of registers: the condition of a ``while`` statement opens, passes and ends its region."""

    def __init__(
        self, regions: Regions, open_while: Callable[[VirtualRegister], LoopRegion], locate: Callable[[], Location]
    ) -> None:
        self._regions = regions
        self._open_while = open_while
        self._locate = locate
        self._running: list[_While] = []

    def truth(self, register: VirtualRegister, frame: FrameType) -> bool:
        """Whether the body runs (again).

        Raises:
            FrontendError: "register.python-value" for any other test, "loop.escape", "loop.carried", "loop.left".
        """
        statement = while_statement(frame)
        if statement is None:
            raise not_a_condition()
        running = [loop for loop in self._running if loop.is_at(statement, frame)]
        return self._again(running[-1], register) if running else self._begin(statement, register, frame)

    def _begin(self, statement: Statement, register: VirtualRegister, frame: FrameType) -> bool:
        """A named register is the condition itself; for a computed one, another register takes each new value."""
        where = self._locate()
        statement.check_body(where)
        condition = register
        if not statement.is_plain:
            condition = register_alloc()
            register_move(condition, register)
        region = self._open_while(condition)
        carried = Carried(statement, frame) if region.recording else None
        if not region.next_trip():
            return False
        self._running.append(_While(statement, frame, region, condition, carried, where))
        return True

    def _again(self, loop: _While, register: VirtualRegister) -> bool:
        if self._regions.innermost is not loop.region or self._running[-1] is not loop:
            raise left(loop.where)
        if loop.carried is not None and loop.region.trips == 1:
            loop.carried.check(loop.where)
        if not loop.statement.is_plain:
            register_move(loop.condition, register)
        elif register is not loop.condition:
            raise lost("the condition", register, "in the next trip", loop.where)
        if loop.region.next_trip():
            return True
        self._running.pop()
        return False


def _no_source(where: Location) -> FrontendError:
    return FrontendError(
        "loop.source",
        "the source of a loop over nl.dynamic_range cannot be read",
        rule="a loop statement on the device is checked for what tracing its body once would lose",
        location=where,
        fix="write def body(i): ... and nl.fori_loop(lower, upper, body, step), or define the function in a file",
    )


def _not_a_statement(where: Location) -> FrontendError:
    return FrontendError(
        "loop.dynamic-range",
        "nl.dynamic_range is iterated by something that is not a for statement of its own",
        rule="the body of a device loop is that of `for i in nl.dynamic_range(...):`, or a function",
        source="nki/deep-dives/nki-dynamic-loops.rst",
        location=where,
        fix="write `for i in nl.dynamic_range(...):`, or def body(i): ... and nl.fori_loop(lower, upper, body, step)",
    )
