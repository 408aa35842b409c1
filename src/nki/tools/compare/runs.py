"""Two runs of one kernel side by side: every value that an instruction writes is compared as soon as both have it."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from queue import Full, Queue

import numpy as np

from nki.core.source import Location
from nki.core.tensor import View
from nki.driver.call import call
from nki.report import NkiWarning, Report
from nki.sim.machine import Machine
from nki.sim.watch import observable, snapshot
from nki.spec.program import Issued
from nki.tools.compare.against import Setup
from nki.tools.compare.measure import Difference
from nki.tools.compare.reference import copied, written_arguments
from nki.tools.compare.rows import Allow, Row, compared
from nki.tools.compare.sides import Arrays, output_rows
from nki.tools.request import Request
from nki.tools.results import named_arrays

Operands = tuple[tuple[str, View, np.ndarray], ...]

_AHEAD = 32  # instructions that the first run may be ahead of the second one
_PATIENCE = 0.1  # seconds after which a waiting run looks whether anybody still listens


@dataclass(frozen=True, slots=True)
class ExecutedStep:
    """One executed instruction: what its operands held before, and what it wrote."""

    core: int
    issued: Issued
    before: Operands
    wrote: Operands


@dataclass(frozen=True, slots=True)
class Diverged:
    """The first instruction that wrote other values.

    Attributes:
        number: how many instructions were executed before it.
        first, second: the instruction in both runs.
        operand: name of the operand that differs, and how.
        difference: of the second run from the first.
    """

    number: int
    first: ExecutedStep
    second: ExecutedStep
    operand: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Parted:
    """Where the runs do not execute the same instructions any more; None: that run has ended."""

    number: int
    first: Issued | None
    second: Issued | None


@dataclass(frozen=True, slots=True)
class Runs:
    """Both runs.

    Attributes:
        rows: the outputs.
        steps: how many instructions were compared.
        diverged, parted: None if that did not happen.
        reports: of both runs.
    """

    rows: list[Row]
    steps: int
    diverged: Diverged | None
    parted: Parted | None
    reports: tuple[Report, Report]

    @property
    def equal(self) -> bool:
        return self.diverged is None and not any(row.failed for row in self.rows)


class _Channel:
    """Steps of the first run on their way to the second one."""

    def __init__(self) -> None:
        self._queue: Queue[ExecutedStep | None] = Queue(_AHEAD)
        self._closed = threading.Event()

    @property
    def open(self) -> bool:
        return not self._closed.is_set()

    def put(self, step: ExecutedStep | None) -> None:
        """Hand on a step, or None at the end; waits while too many are under way."""
        while self.open:
            with contextlib.suppress(Full):
                self._queue.put(step, timeout=_PATIENCE)
                return

    def get(self) -> ExecutedStep | None:
        """The next step, or None after the last one."""
        return self._queue.get()

    def close(self) -> None:
        """Nobody listens any more."""
        self._closed.set()


@dataclass(slots=True)
class _Steps:
    """A watch that hands on every instruction with what it read and wrote."""

    channel: _Channel
    take: Callable[[ExecutedStep], None]
    _before: dict[int, Operands] = field(default_factory=dict)

    def before(self, machine: Machine, issued: Issued) -> None:
        if self.channel.open:
            self._before[machine.core] = tuple(_operands(machine, issued, writes=False))

    def after(self, machine: Machine, issued: Issued) -> None:
        before = self._before.pop(machine.core, None)
        if self.channel.open and before is not None:
            wrote = tuple(_operands(machine, issued, writes=True))
            self.take(ExecutedStep(machine.core, issued, before, wrote))

    def tap(self, machine: Machine, name: str, view: View, location: Location) -> None:
        """Taps are for references."""


class _Pairs:
    """Compares the steps of the second run with those of the first."""

    def __init__(self, channel: _Channel, allow: Allow) -> None:
        self.steps = 0
        self.diverged: Diverged | None = None
        self.parted: Parted | None = None
        self._channel = channel
        self._allow = allow

    def take(self, second: ExecutedStep) -> None:
        """Compare with the same step of the first run; after the first difference nothing is looked at any more."""
        first = self._channel.get()
        if first is None or not _is_same(first, second):
            self.parted = Parted(self.steps, None if first is None else first.issued, second.issued)
        else:
            self._compare(first, second)
        if self.parted or self.diverged:
            self._channel.close()

    def end(self) -> None:
        """The second run has ended: the first one must have, too."""
        if self._channel.open:
            first = self._channel.get()
            if first is not None:
                self.parted = Parted(self.steps, first.issued, None)
            self._channel.close()

    def _compare(self, first: ExecutedStep, second: ExecutedStep) -> None:
        for (name, view, expected), (_, _, found) in zip(first.wrote, second.wrote, strict=True):
            if found.dtype == expected.dtype and found.tobytes() == expected.tobytes():
                continue
            outcome = compared(found, view.dtype, expected, self._allow)
            assert not isinstance(outcome, str), "operands of one instruction have one shape"
            if not outcome.passed:
                self.diverged = Diverged(self.steps, first, second, name, outcome)
                return
        self.steps += 1


def compare_runs(request: Request, first: Setup, second: Setup, allow: Allow) -> Runs:
    """Run the kernel twice at the same time and compare what every instruction writes, then the outputs."""
    channel = _Channel()
    pairs = _Pairs(channel, allow)
    with warnings.catch_warnings(), request.user_code():
        warnings.simplefilter("ignore", NkiWarning)
        background = _Background(lambda: _run(request, first, _Steps(channel, channel.put)), channel)
        try:
            found, report = _run(request, second, _Steps(channel, pairs.take))
            pairs.end()
        finally:
            channel.close()
            background.join()
        expected, first_report = background.outcome()
    return Runs(_rows(found, expected, allow), pairs.steps, pairs.diverged, pairs.parted, (first_report, report))


class _Background(threading.Thread):
    """The first run, in a thread of its own; its end is told to the channel, its error kept for the caller."""

    def __init__(self, run: Callable[[], tuple[Arrays, Report]], channel: _Channel) -> None:
        super().__init__(name="nki compare", daemon=True)
        self._make = run
        self._channel = channel
        self._result: tuple[Arrays, Report] | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._make()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread by outcome()
            self._error = error
        finally:
            self._channel.put(None)

    def outcome(self) -> tuple[Arrays, Report]:
        """Outputs and report, once it has ended."""
        if self._error is not None:
            raise self._error
        assert self._result is not None, "ended without an error"
        return self._result


def _run(request: Request, setup: Setup, watch: _Steps) -> tuple[Arrays, Report]:
    kwargs = copied(request.kwargs)
    launch = replace(request.launch, eager=setup.mode == "eager")
    result, report = call(launch, (), kwargs, {}, setup.options, watch)
    written = [(f"argument {name}", kwargs[name]) for name, _ in written_arguments(report, kwargs)]
    return [*named_arrays(result), *written], report


def _rows(found: Arrays, expected: Arrays, allow: Allow) -> list[Row]:
    first, second = dict(expected), dict(found)
    rows = output_rows([(name, array, first[name]) for name, array in found if name in first], allow)
    for name in first.keys() ^ second.keys():
        array = first.get(name, second.get(name))
        assert array is not None, "in one of both"
        problem = "DIFFERS: only in one run"
        row = Row(
            kind="output",
            name=name,
            core=0,
            shape=array.shape,
            dtype=str(array.dtype),
            difference=None,
            problem=problem,
        )
        rows.append(row)
    return rows


def _operands(machine: Machine, issued: Issued, *, writes: bool) -> Iterator[tuple[str, View, np.ndarray]]:
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        if operand.writes if writes else operand.reads:
            place = observable(view)
            yield name, place, snapshot(machine, place)


def _is_same(first: ExecutedStep, second: ExecutedStep) -> bool:
    """Whether two steps are one call with operands of equal shapes: values may differ, as may names of tensors."""
    return (first.core, first.issued.instruction, first.issued.location) == (
        second.core,
        second.issued.instruction,
        second.issued.location,
    ) and _shapes(first) == _shapes(second)


def _shapes(step: ExecutedStep) -> list[tuple[str, tuple[int, ...], str]]:
    return [(name, view.shape, view.dtype.name) for name, view, _ in (*step.before, *step.wrote)]
