"""Starts: ways to lay out a program that may have room, the one that changes least first.

The order in which the kernel is written stays wherever it fits, as it knows best what it wants. Where it needs more
memory than there is, tensors of few partitions lie side by side, or an order is taken in which less is live at once, or
both. Fills that run late and stores that run early come first, as they leave all else where it was. Tensors are moved
to HBM and back only if none of these is enough, and if the kernel's settings allow it; the order that moves least comes
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nki.passes.allocation.addresses import Layout, spilled
from nki.passes.allocation.partition_halves import upper_half
from nki.passes.allocation.spill import spilled_bytes
from nki.passes.context import Context, PassResult
from nki.passes.order_search.candidates import Start
from nki.passes.scheduling.pressure_reordering import orders_under_pressure
from nki.passes.scheduling.short_lives import with_short_lives
from nki.spec.program import Program
from nki.target.model import Target

IN_USE = 0.9
"""How much of the memories spilling leaves in use: in the rest what comes back can be loaded before it is needed.

Of swiglu in NKIBench (two blocks of rows) a tenth more moves, and the model's time falls by a quarter; more room than
that is worth 3 % at most.
"""
MOST_MOVED = 1.25
"""Bytes that may move for that room, over the least that has to."""


def starts(program: Program, context: Context) -> Iterator[Start]:
    """Where the search may begin. Each is made when it is asked for, after those before it had no room."""
    yield Start(program)
    yield from _side_by_side([program], context)
    less_live: list[Program] = []
    for other in _less_live(program, context.target):
        less_live.append(other)
        yield Start(other)
    yield from _side_by_side(less_live, context)
    if context.config.spill:
        for other in sorted([program, *less_live], key=lambda each: spilled_bytes(each, context.target)):
            fitting = _spilled(other, context)
            if fitting is not None:
                yield Start(replace(fitting.program, placement=None), findings=fitting.findings)


def _spilled(program: Program, context: Context) -> PassResult | None:
    """The program with what does not fit elsewhere, and with room for what comes back if that costs little."""
    least, roomy = spilled(program, context), spilled(program, context, IN_USE)
    if least is None or roomy is None:
        return least or roomy
    return roomy if _moved(roomy) <= MOST_MOVED * _moved(least) else least


def _moved(fitting: PassResult) -> int:
    return sum(
        found.facts["saved"] + found.facts["loaded"] for found in fitting.findings if found.code == "memory.spill"
    )


def _less_live(program: Program, target: Target) -> Iterator[Program]:
    """The program in orders in which less is live at once, the nearest to the written one first."""
    short = with_short_lives(program, target)
    if short is not None:
        yield short
    yield from orders_under_pressure(program, target)


def _side_by_side(programs: Iterable[Program], context: Context) -> Iterator[Start]:
    """Programs with some tensors in the upper half of the partitions; none where that is of no use."""
    for program in programs:
        upper = upper_half(program, context)
        if upper:
            yield Start(program, Layout(upper=upper))
