"""The search: how many candidates are made of a start, and when one is good enough.

Every candidate costs an allocation, a few schedules and their timelines, which all grow with the program. So small
programs try one order after the other, larger ones a single one, and very large ones none.
"""

from __future__ import annotations

from nki.compiler import AddressRotation, CompileConfig
from nki.core.errors import VerificationError
from nki.passes.analysis.dependences import segments_of
from nki.passes.context import Context
from nki.passes.order_search.ahead import share_ahead
from nki.passes.order_search.candidates import Candidate, Start
from nki.passes.order_search.choice import MOST_TIMED, better
from nki.passes.order_search.evaluation import Evaluation
from nki.passes.order_search.heuristic_orders import ListOrders, written_order
from nki.passes.order_search.heuristics import HEURISTICS, Heuristics
from nki.passes.scheduling.ready_list import NEVER
from nki.passes.scheduling.tasks import Tasks
from nki.spec.program import Program
from nki.spec.queue import DMA

MOST_TRIED = 20_000
"""Instructions of programs for which other orders are tried; larger ones take the order in which they were written."""
SMALL = 16
"""Instructions of segments in which there is nothing to gain."""
EFFORT = 1900
"""Instructions of all orders together after which no further one is tried."""
ENOUGH = 1.002
"""Makespan over about the least one with which no further order is tried."""
BUSY_ENOUGH = 1.01
"""Makespan over the work of the busiest queue with which no order is tried, for large programs.

What is left is the start and the end of that queue.
"""


def is_searched(program: Program, config: CompileConfig) -> bool:
    """Whether other orders than the written one are looked for.

    With `AddressRotation.DISABLE` tensors are packed tightly for the order in which the kernel was written.
    """
    if config.address_rotation is AddressRotation.DISABLE:
        return False
    if sum(1 for _ in program.body.walk()) > MOST_TRIED:
        return False
    return any(segment.after - segment.first > SMALL for segment in segments_of(program))


def search(start: Start, context: Context, tasks: Tasks, heuristics: Heuristics = HEURISTICS) -> Candidate:
    """The best candidate of a start.

    Args:
        start: whose orders are tried.
        context: of the compilation.
        tasks: for its target; they may be shared by several searches.
        heuristics: that make the orders.

    Raises:
        VerificationError: why the written order has no place, if none has.
    """
    best: Candidate | None = None
    failure: VerificationError | None = None
    shares = dict.fromkeys(share_ahead(start.program, context, share) for share in context.imitation.ahead)
    for share in shares:
        evaluation, written = _written(start, context, tasks, share)
        several = evaluation.instructions <= MOST_TIMED
        best = better(best, (_of_several if several else _of_few)(evaluation, written, heuristics))
        failure = failure or evaluation.failure
    if best is None:
        assert failure is not None, "the written order was evaluated"
        raise failure
    return best


def _written(start: Start, context: Context, tasks: Tasks, share: float) -> tuple[Evaluation, Candidate | None]:
    """The written order in the part of SBUF for running ahead, or in all of it if it has no place in that part.

    All other orders get as much as that: what is loaded ahead must not take what the kernel does not need.
    """
    part = start._replace(layout=start.layout._replace(share=share))
    evaluation = Evaluation(part, context, tasks)
    written = evaluation.of(written_order(start.program))
    if written is None and part != start:
        evaluation = Evaluation(start, context, tasks)
        written = evaluation.of(written_order(start.program))
    return evaluation, written


def _of_several(evaluation: Evaluation, written: Candidate | None, heuristics: Heuristics) -> Candidate | None:
    """The best of one order after the other, until there were enough or one is good enough."""
    orders = ListOrders(evaluation.start.program, evaluation.target, evaluation.tasks)
    enough = ENOUGH * orders.least()
    best = written
    for heuristic in heuristics.several:
        if evaluation.spent >= EFFORT or (best is not None and best.makespan <= enough):
            break
        order = orders.under(heuristic)
        if order is not None:
            best = better(best, evaluation.of(order, NEVER if best is None else best.makespan))
    return best


def _of_few(evaluation: Evaluation, written: Candidate | None, heuristics: Heuristics) -> Candidate | None:
    """The better one of the written order and of that which promises most; of the next one if that has no place.

    Nothing is tried where the busiest queue hardly ever waits, and no order that promises less than the written one
    gives, by the same estimate.
    """
    given = NEVER if written is None else written.schedule.estimate
    if given <= BUSY_ENOUGH * _work(evaluation.start.program, evaluation.tasks):
        return written
    orders = ListOrders(evaluation.start.program, evaluation.target, evaluation.tasks)
    rows = heuristics.one_with_sums if orders.sums else heuristics.one_without
    found = [order for order in map(orders.under, rows) if order is not None and order.promise < given]
    for order in sorted(found, key=lambda order: order.promise):
        other = evaluation.of(order, NEVER if written is None else written.makespan)
        if other is not None:
            return better(written, other)
    return written


def _work(program: Program, tasks: Tasks) -> float:
    """ns for which the busiest queue works, as the list scheduler sees it; loops count as nothing."""
    work: dict[str, float] = {}
    for segment in segments_of(program):
        for task in tasks.of(segment.items):
            work[task.queue] = work.get(task.queue, 0.0) + (task.interval if task.queue == DMA else task.busy)
    return max(work.values(), default=0.0)
