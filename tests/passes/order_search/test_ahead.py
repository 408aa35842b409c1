"""Loads run ahead in half of SBUF, or in what two copies of each tile of a loop take, if these have room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.options import Options
from nki.passes import allocate_and_schedule
from nki.passes.context import Context, PassResult
from nki.passes.order_search import search
from nki.passes.order_search.ahead import doubled, share_ahead
from nki.spec.program import Program
from nki.timing.timeline import timeline
from tests.passes.kernels import TRN2, traced

KIB = 1024
USABLE = TRN2.sbuf.usable_bytes_per_partition


def blocks(a: Any, kib: int, sums_kib: int) -> Any:
    """Blocks of so many KiB of a partition, each of which is summed up when all of it is there."""
    out = nl.ndarray((128, sums_kib * KIB // 4), a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(out.shape, nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for number in range(8):
        block = nl.ndarray((128, kib * KIB // 4), nl.float32, buffer=nl.sbuf)
        for start in range(0, block.shape[1], 1024):
            piece = slice(start, start + 1024)
            nisa.dma_copy(dst=block[:, piece], src=a[number * 128 : (number + 1) * 128, piece])
        nisa.tensor_reduce(dst=total[:, number : number + 1], op=nl.add, data=block, axis=1)
    nisa.dma_copy(dst=out, src=total)
    return out


@pytest.mark.parametrize(
    ("kib", "sums_kib", "share"),
    [
        (16, 24, 0.5),  # two blocks and the sums are 56 KiB, less than half
        (48, 24, 120 * KIB / USABLE),  # 120 KiB: more than half
        (112, 24, 0.5),  # two blocks have no room
    ],
)
def test_two_copies_of_a_block_count_and_one_of_the_sums(kib: int, sums_kib: int, share: float) -> None:
    program = traced(blocks, np.zeros((8 * 128, kib * KIB // 4), np.float32), kib, sums_kib)[0]
    assert doubled(program) == (2 * kib + sums_kib) * KIB
    assert share_ahead(program, Context(TRN2), 0.5) == pytest.approx(share)
    assert share_ahead(program, Context(TRN2), 1.0) == 1.0


def makespan(program: Program, setting: str = "vendor") -> float:
    context = Context(TRN2, Options(imitate=setting))
    placed = allocate_and_schedule.PASS.step(PassResult(program), context).scheduled
    assert placed is not None
    return timeline(placed(), TRN2).makespan


def test_blocks_of_48_kib_are_loaded_while_the_last_one_is_computed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As measured on trn2 for blocks of 12 x 4 tiles, which load at the full rate all the time."""
    program = traced(blocks, np.zeros((8 * 128, 12 * KIB), np.float32), 48, 24)[0]
    found = makespan(program)
    monkeypatch.setattr(search, "share_ahead", lambda program, context, share: share)
    assert found < 0.8 * makespan(program)
    assert makespan(program, "none") <= found
