"""Schedules in the order of the source: what those of the compiler are measured against."""

from __future__ import annotations

from nki.passes.context import Context
from nki.passes.order_search.evaluation import scheduled
from nki.passes.scheduling.list_schedule import in_order
from nki.passes.scheduling.tasks import Tasks
from nki.spec.program import Program


def as_written(program: Program, context: Context) -> Program:
    """Synchronise every segment in the order that it has."""
    tasks = Tasks(context.target)
    return scheduled(program, context, tasks, lambda *circumstances: [in_order(*circumstances)]).program()
