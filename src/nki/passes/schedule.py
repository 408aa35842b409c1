"""Scheduling: an order, queues and waits for the instructions of every segment, chosen on the timing model.

Before: instructions in an order that gives the kernel's results if they run one after the other, and addresses. After:
the same instructions in the order of the best schedule that was found (`nki.passes.order_search`), each with its queue
and with waits that keep every dependence.
"""

from __future__ import annotations

from nki.passes.context import Context, Pass, PassResult
from nki.passes.order_search.evaluation import scheduled
from nki.passes.scheduling.tasks import Tasks
from nki.spec.program import Program
from nki.timing.loops import Spent


def run(program: Program, context: Context) -> Program:
    """Reorder and synchronise every segment."""
    return scheduled(program, context, Tasks(context.target)).program()


def spent(before: PassResult, context: Context) -> Spent:
    """What the program after this pass would spend on one core, without making it."""
    return before.spent or scheduled(before.program, context, Tasks(context.target)).spent


def _step(before: PassResult, context: Context) -> PassResult:
    """The schedule for which addresses were chosen, if the pass before did that, else a new one: both are equal."""
    return PassResult(run(before.program, context) if before.scheduled is None else before.scheduled())


PASS = Pass("schedule", "Order the instructions of each queue, and make queues wait for each other.", _step)
