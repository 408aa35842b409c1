"""Allocation for the order in which a program will run: tensors that will be in use together get bytes of their own.

Before: tensors on chip without addresses. After: each has one, chosen for the best order that was found
(`nki.passes.order_search`); its schedule is handed to the pass that follows. The instructions may be in another order,
and with ``CompileConfig(spill=True)`` there may be copies of tensors that wait elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from nki.core.errors import VerificationError
from nki.passes.allocation import addresses
from nki.passes.context import Context, Pass, PassResult
from nki.passes.order_search.candidates import Start
from nki.passes.order_search.heuristics import HEURISTICS, Heuristics
from nki.passes.order_search.search import is_searched, search
from nki.passes.order_search.starts import starts
from nki.passes.scheduling.tasks import Tasks
from nki.spec.program import Program


def run(program: Program, context: Context, heuristics: Heuristics = HEURISTICS) -> PassResult:
    """The program with its `placement`, from the first start that has room.

    Args:
        program: has no addresses but those that the kernel gives.
        context: of the compilation.
        heuristics: that make orders to be tried.

    Raises:
        VerificationError: see `addresses.allocate`; of the order in which the kernel was written.
    """
    tasks = Tasks(context.target)
    failures: list[VerificationError] = []
    for start in starts(program, context):
        try:
            return _allocated(start, context, tasks, heuristics)
        except VerificationError as error:
            failures.append(error)
        if failures[0].code != "memory.capacity":  # no start would help
            raise failures[0]
    raise failures[0]


def _allocated(start: Start, context: Context, tasks: Tasks, heuristics: Heuristics) -> PassResult:
    if is_searched(start.program, context.config):
        found = search(start, context, tasks, heuristics).result
    else:
        found = addresses.allocate(start.program, context, start.layout)
    return replace(found, findings=(*start.findings, *found.findings))


PASS = Pass("allocate_and_schedule", addresses.PASS.summary, lambda before, context: run(before.program, context))
