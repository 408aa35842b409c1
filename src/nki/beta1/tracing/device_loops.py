"""Loops that the device runs: ``for i in nl.sequential_range(number):`` and ``while number:``.

They are recognised where they run, by the instruction of Python's that asks for an iterator or a truth, as loops of
today's language are (`nki.frontend.loops`). The body is traced once. What is on one side of a boundary (the begin and
end of a loop, and of a trip) knows nothing of which instructions ran last on the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import Beta1Error, Beta1ValueError, refused
from nki.beta1.tensors.scalar import Scalar
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.handed_on import HandedOn, is_replaced, not_handed_on
from nki.beta1.tracing.promises import AffineLoop
from nki.beta1.tracing.scalars import number_of
from nki.beta1.tracing.session import Session, current
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.frontend.loops.regions import LoopRegion
from nki.frontend.loops.statements import Statement, at_node, for_statement, has_source, while_statement
from nki.spec.program import ForLoop

_ONCE = "the body of a loop over a number of run time is traced once, and runs from its first line to its last"


class DeviceRange:
    """What ranges of numbers of run time return: a ``for`` statement over it is a loop of the device.

    Attributes:
        function: its name, for messages.
        lower, upper: ints or numbers of run time; `upper` is not reached.
        step: a positive int.
        promises: whether no trip uses what another one wrote.
    """

    __slots__ = ("function", "lower", "promises", "step", "upper")

    def __init__(self, function: str, bounds: list[Any], *, promises: bool) -> None:
        first, last = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        self.function, self.lower, self.upper, self.promises = function, first, last, promises
        self.step = bounds[2] if len(bounds) > 2 else 1
        if type(self.step) is not int or self.step < 1:
            raise refused(
                "argument",
                f"{function} over a number of run time has the step {self.step!r}",
                "count up, and compute the index: n - 1 - i",
                rule="loops of the device count up by a constant",
            )

    def __iter__(self) -> Iterator[Scalar]:
        session, frame = current(self.function), sys._getframe(1)
        where = session.tracer.locator.capture()
        statement = for_statement(frame)
        if statement is None:
            raise _no_statement(self.function, has_source(frame), where)
        _check_body(statement, where)
        return self._trips(session, HandedOn(statement, frame, where), where)

    def _trips(self, session: Session, names: HandedOn, where: Location) -> Iterator[Scalar]:
        region = session.tracer.for_region(_bound(self.lower), _bound(self.upper), self.step)
        assert isinstance(region.loop, ForLoop), "a for statement runs a for loop"
        if self.promises and region.recording:
            session.loops.append(AffineLoop(where, region.loop.body, device=True))
        while _next_trip(session, region):
            yield Scalar.of(region.loop.index)
            names.hand_on()


@dataclass(frozen=True, slots=True)
class RunningWhile:
    """A ``while`` statement that runs, and the frame that runs it."""

    statement: Statement
    frame: FrameType
    region: LoopRegion
    condition: VirtualRegister
    names: HandedOn


def asked(number: Scalar, frame: FrameType) -> bool:
    """Whether the body of ``while number:`` runs (again).

    Raises:
        Beta1Error: any other test ("beta1.dynamic_control_flow_not_supported"), or a loop whose first trip depends on
            a number of run time ("beta1.while_loop_requires_unconditional_entry").
    """
    session, statement = current("while"), while_statement(frame)
    if statement is None:
        raise refused(
            "dynamic_control_flow_not_supported",
            "a number of run time decides what Python does",
            "compute both, and choose with nl.where; smaller and larger numbers are nl.minimum and nl.maximum; for a "
            "loop, write `while cond:`",
            rule="its value is known when the kernel runs",
            kind=Beta1ValueError,
        )
    running = [each for each in session.whiles if each.frame is frame and each.statement is statement]
    return _again(session, running[-1], number) if running else _begin(session, statement, number, frame)


def _begin(session: Session, statement: Statement, number: Scalar, frame: FrameType) -> bool:
    where = session.tracer.locator.capture()
    if not (statement.is_plain and number.known and number.const):
        raise refused(
            "while_loop_requires_unconditional_entry",
            "Traditional while loops are not supported - use do-while pattern instead.",
            "write `cond = nt.scalar(True)` before the loop, `while cond:`, and at the end of its body the condition: "
            "`cond = number < 10`",
            rule="the first trip of a loop is always executed",
            kind=Beta1ValueError,
        )
    _check_body(statement, where)
    names = HandedOn(statement, frame, where)
    condition = nisa.register_alloc(1)
    region = session.tracer.while_region(condition.record)
    _next_trip(session, region)
    session.whiles.append(RunningWhile(statement, frame, region, condition, names))
    return True


def _again(session: Session, loop: RunningWhile, number: Scalar) -> bool:
    if number.known and number.const:
        raise refused(
            "dynamic_control_flow_not_supported",
            "the condition of a while loop stays true, so that the loop never ends",
            "compute the condition at the end of the body: `cond = nt.scalar(tile)`",
            kind=Beta1ValueError,
        )
    nisa.register_move(loop.condition, number.const if number.known else number.register())
    loop.names.hand_on()
    if _next_trip(session, loop.region):
        return True
    session.whiles.remove(loop)
    return False


class DoWhile:
    """``with do_while(condition):``: a loop whose body writes the next condition to a tensor of one element.

    Python passes the body once. A name that held something before the loop holds the same behind the body.
    """

    def __init__(self, condition: Tensor) -> None:
        self._condition = condition

    def __enter__(self) -> None:
        self._session, self._frame = current("do_while"), sys._getframe(1)
        self._where = self._session.tracer.locator.capture()
        self._before = dict(self._frame.f_locals)
        self._register = nisa.register_alloc(1)
        self._region = self._session.tracer.while_region(self._register.record)
        _next_trip(self._session, self._region)

    def __exit__(self, kind: Any, *problem: object) -> None:
        if kind is not None:
            return
        held = self._frame.f_locals
        for name, before in self._before.items():
            if name in held and is_replaced(before, held[name]):
                raise not_handed_on(name, held[name], "it held something else before the loop", self._where)
        nisa.register_move(self._register, number_of(self._condition).register())
        self._session.settle()
        self._region.finish(self._session.tracer.program)
        self._session.boundary()


def _next_trip(session: Session, region: LoopRegion) -> bool:
    """Begin the next trip of a loop, or end it."""
    session.settle()
    more = region.next_trip()
    session.boundary()
    return more


def _bound(value: Any) -> int | VirtualRegister:
    if type(value) is Scalar:
        return value.const if value.known else value.register().record
    return int(value)


def _check_body(statement: Statement, where: Location) -> None:
    """Raise Beta1Error at the first statement that would leave the body."""
    if statement.escape is None:
        return
    word = type(statement.escape).__name__.lower()
    fixes = {
        "break": "end the loop by its condition: `while cond:`, with `cond = nt.scalar(tile)` at the end of the body",
        "continue": "put the rest of the body under the opposite `if`",
        "return": "return behind the loop",
    }
    raise refused(
        "dynamic_control_flow_not_supported",
        f"{word} in the body of a loop over a number of run time",
        fixes[word],
        rule=_ONCE,
        location=at_node(statement.escape, where),
    )


def _no_statement(function: str, readable: bool, where: Location) -> Beta1Error:
    return refused(
        "dynamic_control_flow_not_supported",
        f"{function} over a number of run time is iterated by something that is not a for statement of its own"
        if readable
        else f"the source of a loop over {function} cannot be read",
        f"write `for i in {function}(number):`" if readable else "define the function in a file",
        rule=_ONCE,
        location=where,
    )


Scalar.asked.append(asked)
