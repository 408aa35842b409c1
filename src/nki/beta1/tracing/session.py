"""One trace of a kernel of the first NKI: which program runs, and which instructions another one has made needless."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nki.beta1.errors import refused
from nki.beta1.tensors.conjunction import forget
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.fills import overwritten
from nki.beta1.tracing.grid import GridAxis, programs_of
from nki.beta1.tracing.programs import Programs
from nki.beta1.tracing.promises import AffineLoop, broken_promises
from nki.beta1.tracing.sums import Sums
from nki.beta1.tracing.written import Written
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.frontend.trace import Tracer
from nki.spec.engine import engine
from nki.spec.program import Block, Issued
from nki.spec.rule import Finding
from nki.spec.signature import Signature

if TYPE_CHECKING:
    from nki.beta1.tracing.device_loops import RunningWhile
    from nki.beta1.tracing.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Last:
    """What made the last value, which may still get another destination.

    Attributes:
        view: the tile of its own.
        start, end: which instructions compute it.
        explicit: whether the kernel chose the value's dtype, so that it rounds to that first.
        compute: what issued it, which holds its operands.
    """

    view: View
    start: int
    end: int
    explicit: bool = False
    compute: Callable[[], NkiTensor] | None = None


@dataclass(eq=False, slots=True)
class Session:
    """What a trace knows beside its tracer.

    Attributes:
        grid: its axes; empty if there is none.
        program: the ids of the program that runs, one for each axis.
        shared: tensors that all programs of the grid share, in the order in which each of them makes them.
        made: how many of them the program has made; `counts` has that of those that wait.
        programs: who runs them.
        superseded: instructions whose result was computed once more, where it was assigned, and that result.
        auto_alloc: whether addresses that the kernel chooses are ignored.
        loops: runs of nl.affine_range.
        whiles: statements ``while number:`` that run, innermost last.
        left_out: what is told of trips that do not run.
        inside: the programs that are in a run of nl.affine_range, once for each run.
        sums: what was written to PSUM.
        written: which bytes on chip were.
        summed: the instructions of ``target += value``, see `nki.beta1.tracing.promises`.
        fills: instructions that gave tiles of nl.full and the like their value.
        blanks: destinations of instructions that have none yet, see `nki.beta1.tracing.pending`.
        blanked: instructions with a blank, which were issued with another destination.
        recipes: instructions that computations issued, by what tells those, see `nki.beta1.tracing.recipes`; None for
            computations that issue several.
        products: engines of legal products, by the signature without a destination, and whether they add to a sum.
        last: what made the last value, see `nki.beta1.tracing.destination`.
    """

    tracer: Tracer
    grid: tuple[GridAxis, ...]
    program: tuple[int, ...] = ()
    shared: list[Tensor] = field(default_factory=list)
    made: int = 0
    counts: dict[tuple[int, ...], int] = field(default_factory=dict)
    superseded: list[tuple[Issued, View]] = field(default_factory=list)
    programs: Programs = field(init=False)
    last: Last | None = None
    loops: list[AffineLoop] = field(default_factory=list)
    whiles: list[RunningWhile] = field(default_factory=list)
    inside: list[tuple[int, ...]] = field(default_factory=list)
    left_out: list[Finding] = field(default_factory=list)
    auto_alloc: bool = False
    sums: Sums = field(default_factory=Sums)
    written: Written = field(default_factory=Written)
    summed: dict[int, tuple[str, int]] = field(default_factory=dict)
    fills: list[Issued] = field(default_factory=list)
    blanked: list[Issued] = field(default_factory=list)
    recipes: dict[Hashable, Recipe | None] = field(default_factory=dict)
    products: dict[tuple[Signature, bool], engine] = field(default_factory=dict)
    blanks: dict[tuple[tuple[int, ...], DType, str], NkiTensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.programs = Programs(list(programs_of(self.grid, self.tracer.core)), self.begin)

    def begin(self, program: tuple[int, ...]) -> None:
        """The program that runs from here on."""
        self.counts[self.program] = self.made
        self.program, self.made = program, self.counts.get(program, 0)
        self.settle()
        self.last = self.tracer.retained = None

    @property
    def items(self) -> list[Issued]:
        """What the running body has been through, an instruction that waits for its destination with it.

        Loops of the device are among them; none is behind the last boundary.
        """
        self.settle()
        return self.tracer.body.passed  # type: ignore[return-value]

    @property
    def position(self) -> int:
        """How many of them there are."""
        self.settle()
        return self.tracer.body.position

    def settle(self) -> None:
        """Issue an instruction that waits for its destination."""
        if self.tracer.waiting is not None:
            self.tracer.waiting()

    def boundary(self) -> None:
        """Note that a loop of the device begins or ends here, or a trip of it."""
        self.settle()
        self.last = self.tracer.retained = None
        self.sums.forget(self.tracer.body)
        self.written.forget(self.tracer.body)

    def finish(self) -> None:
        """Leave out the superseded instructions that nobody reads, and check the promises of loops."""
        self.settle()
        self._leave_out()
        self.report(self.left_out)
        self.report(broken_promises(self.loops, self.tracer.program, self.tracer.target, self.summed))

    def report(self, findings: Iterable[Finding]) -> None:
        """Report what was found at the end of the kernel, but for rules that are switched off."""
        for finding in findings:
            if finding.code not in self.tracer.options.disabled_rules:
                self.tracer.report(finding)

    def _leave_out(self) -> None:
        body = self.tracer.program.body
        wanted = _read({id(view.buffer) for _, view in self.superseded}, body.walk()) if self.superseded else set()
        needless = [(issued, view) for issued, view in self.superseded if id(view.buffer) not in wanted]
        gone, unused = {id(issued) for issued, _ in needless}, {id(view.buffer) for _, view in needless}
        gone |= {id(issued) for issued in (*self.sums.needless, *self.blanked)}
        gone |= overwritten(self.fills, body)
        if not gone:
            return
        self._leave_out_of(body, gone, unused)
        for ordered in self.tracer.ordered:
            ordered[:] = [item for item in ordered if id(item) not in gone]
        self.superseded.clear()

    def _leave_out_of(self, body: Block, gone: set[int], unused: set[int]) -> None:
        left = list(itertools.accumulate([id(item) not in gone for item in body.items], initial=0))
        for loop in self.loops:
            if loop.body is body:
                loop.starts, loop.end = [left[start] for start in loop.starts], left[loop.end]
        body.items[:] = [item for item in body.items if id(item) not in gone]
        body.buffers[:] = [buffer for buffer in body.buffers if id(buffer) not in unused]
        for item in body.items:
            if not isinstance(item, Issued):
                self._leave_out_of(item.body, gone, unused)


def _read(buffers: set[int], items: Iterable[Issued]) -> set[int]:
    """Which of some buffers instructions read, as operands or as indices of operands."""
    found = set()
    for instruction, arguments, _, _ in items:
        for at in instruction.read_positions:
            value = arguments[at]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                if id(view.buffer) in buffers:
                    found.add(id(view.buffer))
        for at, _ in instruction.tensor_positions:
            value = arguments[at]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                if view.dynamic is not None and isinstance(view.dynamic.indices, View):
                    found.add(id(view.dynamic.indices.buffer))
    return found


_CURRENT: ContextVar[Session | None] = ContextVar("nki_beta1_session", default=None)
"""The trace that runs in this context: functions of the language are called without a way to hand it on."""


@contextmanager
def session(tracer: Tracer, grid: tuple[GridAxis, ...]) -> Iterator[Session]:
    """The session of a trace, for what is called in it."""
    made = Session(tracer, grid)
    forget()
    token = _CURRENT.set(made)
    try:
        yield made
    finally:
        _CURRENT.reset(token)


def in_session() -> bool:
    """Whether a kernel of the first NKI is traced here."""
    return _CURRENT.get() is not None


def current(function: str) -> Session:
    """The session of the running kernel. Raises Beta1Error "beta1.nki_api_outside_of_nki_kernel"."""
    found = _CURRENT.get()
    if found is None:
        raise refused(
            "nki_api_outside_of_nki_kernel",
            f"{function} is called outside of a kernel",
            "call it in a function that nki.jit decorates",
            rule="calling NKI API outside of NKI kernels is not supported",
        )
    return found
