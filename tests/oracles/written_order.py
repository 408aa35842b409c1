"""Schedules in the order of the source: what those of the compiler are measured against."""

from __future__ import annotations

from nki.passes.context import Context
from nki.passes.schedule import Tasks, _Maker
from nki.passes.scheduling.list_schedule import in_order
from nki.spec.program import Program


def as_written(program: Program, context: Context) -> Program:
    """Synchronise every segment in the order that it has."""
    maker = _Maker(program, context.target, Tasks(context.target))
    return maker.scheduled(lambda *circumstances: [in_order(*circumstances)])
