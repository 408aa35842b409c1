"""Judges faulty programs: what the static checks say, what hostile runs show, and what is true."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from nki.core.errors import NkiError
from nki.core.tensor import MemoryRegion
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes.analysis.dependences import segments_of
from nki.passes.analysis.liveness import Range, liveness
from nki.passes.context import Context
from nki.passes.pipeline import Stage, compile_programs
from nki.passes.proof.happens_before import check
from nki.spec.program import Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.testing.adversary import Policy
from tests.fuzz.checks import adverse
from tests.fuzz.mutants import Mutant, mutant
from tests.fuzz.oracle import Reference, segments
from tests.fuzz.programs import Case, case
from tests.oracles.reordering import check_reordering


@dataclass(frozen=True)
class Verdict:
    """One faulty program.

    Attributes:
        static: what the compiler's own checks say, "" if nothing.
        shown: the hostile run that shows it, "" if none did.
        fault: how it can go wrong, "" if it cannot: it is equivalent.
    """

    seed: int
    kind: str
    what: str
    static: str
    shown: str
    fault: str

    @property
    def result(self) -> str:
        """ "caught" or "missed" if the fault matters; "equivalent", or "refused" all the same, if it does not."""
        if self.fault or self.shown:
            return "caught" if self.static else "missed"
        return "refused" if self.static else "equivalent"


@dataclass(frozen=True)
class Subject:
    """A case on one core: as traced and unrolled, with places, and after all passes."""

    case: Case
    target: Target
    traced: Program
    allocated: Program
    scheduled: Program
    results: list[bytes]


def subject(seed: int) -> Subject:
    """The kernel of a number, on one core."""
    made = case(seed)
    target, options = load_target(made.target), Options(target=made.target)
    stages: dict[str, Program] = {}

    def note(stage: Stage) -> None:
        stages[stage.name] = stage.programs[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tracer,) = trace_only(Launch(made.kernel), copy.deepcopy(made.arguments), {}, target, options)
        (scheduled,) = compile_programs([tracer.program], Context(target, options, made.config), after=note).programs
    return Subject(
        made, target, stages["unroll"], stages["allocate_and_schedule"], scheduled, adverse(made, [scheduled], Policy())
    )


def verdicts(seed: int, count: int, of_a_kernel: int = 10, most: int = 60) -> Iterator[Verdict]:
    """Several mutants of each of some kernels of at most so many instructions on one core."""
    number, made = seed * 1_000_000, 0
    while made < count:
        number += 1
        if case(number).lnc is not None:
            continue
        of = subject(number)
        if sum(1 for _ in of.scheduled.body.walk()) > most:
            continue
        reference = Reference(of.traced)
        assert reference.fault(of.scheduled) == "", "what the compiler made is right to begin with"
        assert next(findings(of, of.scheduled), "") == "", "and passes its checks"
        for which in range(min(of_a_kernel, count - made)):
            yield judged(of, reference, number * of_a_kernel + which)
            made += 1


def judged(of: Subject, reference: Reference, seed: int) -> Verdict:
    """A random mutant of a case, judged."""
    made = mutant(of.scheduled, Random(f"mutant {seed}"))
    static = next(findings(of, made.program), "")
    return Verdict(seed, made.kind, made.what, static, shown(of, made, seed), reference.fault(made.program))


def findings(of: Subject, program: Program) -> Iterator[str]:
    """What the compiler's checks find in a program that claims to be a schedule of the allocated one."""
    for race in check([program], of.target):
        yield race.message
    allocated = replace(of.allocated, placement=program.placement)
    for one, other in _overlapping(allocated):
        yield f"{one.buffer.name} and {other.buffer.name} are live at once and share bytes"
    for own, after in zip(segments_of(allocated), segments(program), strict=True):
        place = {id(issued): position for position, issued in enumerate(own.items)}
        order = [place[id(issued)] for issued in after.items]
        edges = [*own.edges, *((k, k + 1) for first, last in own.fences for k in range(first, last - 1))]
        for race in check_reordering(own.items, order, allocated, of.target, edges):
            yield race.message


def shown(of: Subject, made: Mutant, seed: int) -> str:
    """A hostile run whose results are others, or that does not end."""
    random = Random(seed)
    policies = [Policy(), Policy(in_flight=True)]
    policies += [Policy("late", queue, in_flight=True) for queue in made.queues]
    policies += [Policy("early", queue, in_flight=True) for queue in made.queues]
    policies += [Policy("random", seed=random.getrandbits(16), in_flight=True) for _ in range(2)]
    for policy in policies:
        try:
            if adverse(of.case, [made.program], policy) != of.results:
                return str(policy)
        except NkiError as error:
            return f"{policy}: {error.code}"
    return ""


def _overlapping(program: Program) -> Iterator[tuple[Range, Range]]:
    """Tensors that are live at once and share bytes, at least one of them placed by the compiler."""
    places = program.placement or {}
    live = [found for found in liveness(program).buffers if found.buffer.address or found.buffer.id in places]
    for number, one in enumerate(live):
        for other in live[:number]:
            both = one.buffer.address is not None and other.buffer.address is not None
            together = one.first <= other.last and other.first <= one.last
            if together and not both and _share(one, other, places):
                yield other, one


def _share(one: Range, other: Range, places: dict[int, tuple[int, int]]) -> bool:
    a, b = one.buffer, other.buffer
    (p, low), (q, start) = (x.address or places[x.id] for x in (a, b))
    unit = 1 if a.region is MemoryRegion.sbuf else 4
    rows = p < q + b.partitions and q < p + a.partitions
    same = a.region is b.region
    return same and rows and low < start + _rounded(b.row_bytes, unit) and start < low + _rounded(a.row_bytes, unit)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
