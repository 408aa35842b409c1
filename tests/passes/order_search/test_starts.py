"""Where the search begins: the written order, and what may have room where that has none."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from nki.compiler import CompileConfig
from nki.passes.allocation.addresses import EVERYWHERE
from nki.passes.context import Context
from nki.passes.order_search.starts import starts
from tests.passes.allocation.partition_halves_kernels import pair
from tests.passes.allocation.support import TRN2, traced
from tests.passes.allocation.test_partition_halves import HALF, wide
from tests.passes.scheduling.test_pressure_reordering import KERNELS

SPILLING = Context(TRN2, config=CompileConfig(spill=True))


def test_the_written_order_is_the_first_start() -> None:
    program = traced(*KERNELS[0])
    (first,) = islice(starts(program, SPILLING), 1)
    assert first.program is program
    assert (first.layout, first.findings) == (EVERYWHERE, ())


def test_tensors_of_few_partitions_lie_side_by_side_before_anything_moves() -> None:
    program = traced(pair(), wide(HALF))
    second = list(islice(starts(program, Context(TRN2)), 2))[-1]
    assert second.program is program
    assert second.layout == EVERYWHERE._replace(upper=second.layout.upper)
    assert len(second.layout.upper) == 1


def test_other_orders_come_next_and_spilling_last_where_it_is_allowed() -> None:
    kernel, array = KERNELS[0]
    program = traced(kernel, np.array(array))
    without, allowed = (list(starts(program, context)) for context in (Context(TRN2), SPILLING))
    assert not any(start.findings for start in without)
    assert not any(start.findings for start in allowed[: len(without)])
    orders = [[id(issued) for issued in start.program.body.walk()] for start in without]
    assert len(orders) > 1
    assert all(order != orders[0] and sorted(order) == sorted(orders[0]) for order in orders[1:])
    last = allowed[len(without) :]
    assert len(last) == len({tuple(order) for order in orders})
    assert [start.findings[0].code for start in last if start.findings] == ["memory.spill"]  # the written order


def test_a_start_is_made_when_it_is_asked_for() -> None:
    """Looking for tensors that lie side by side needs the target; the written order is there without."""
    program = traced(*KERNELS[0])
    broken = replace(SPILLING, target=None)  # type: ignore[arg-type]
    assert next(starts(program, broken)).program is program
