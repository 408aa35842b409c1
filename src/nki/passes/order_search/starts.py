"""Starts: ways to lay out a program that may have room, the one that changes least first.

The order in which the kernel is written stays wherever it fits, as it knows best what it wants. Where it needs more
memory than there is, tensors of few partitions lie side by side, or an order is taken in which less is live at once, or
both. Tensors are moved to HBM and back only if none of these is enough, and if the kernel's settings allow it; the
order that moves least comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nki.passes.allocation.addresses import Layout
from nki.passes.allocation.partition_halves import upper_half
from nki.passes.allocation.spill import spilled_bytes
from nki.passes.context import Context
from nki.passes.order_search.candidates import Start
from nki.passes.scheduling.pressure_reordering import orders_under_pressure
from nki.spec.program import Program


def starts(program: Program, context: Context) -> Iterator[Start]:
    """Where the search may begin. Each is made when it is asked for, after those before it had no room."""
    yield Start(program)
    yield from _side_by_side([program], context)
    less_live: list[Program] = []
    for other in orders_under_pressure(program, context.target):
        less_live.append(other)
        yield Start(other)
    yield from _side_by_side(less_live, context)
    if context.config.spill:
        for other in sorted([program, *less_live], key=lambda each: spilled_bytes(each, context.target)):
            yield Start(other, spilling=True)


def _side_by_side(programs: Iterable[Program], context: Context) -> Iterator[Start]:
    """Programs with some tensors in the upper half of the partitions; none where that is of no use."""
    for program in programs:
        upper = upper_half(program, context)
        if upper:
            yield Start(program, Layout(upper=upper))
