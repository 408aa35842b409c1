"""What tests of ranks share: tensors, inputs, and a run in every mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki import collectives as ncc
from nki.runtime import run_ranks

FOUR = ncc.ReplicaGroup([[0, 1, 2, 3]])


CROSSED = ncc.ReplicaGroup([[2, 0], [1, 3]])


LISTS = {"four": ((0, 1, 2, 3),), "crossed": ((2, 0), (1, 3))}


def hbm(shape: Sequence[int], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(tuple(shape), dtype, buffer=nl.shared_hbm)


def sources(count: int, shape: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray]:
    values = np.random.default_rng(7).normal(size=(count, *shape)) * 4
    return list(values.astype(dtype))


def everywhere(kernel: Callable[..., Any], arguments: Sequence[Sequence[Any]], lnc: int = 1) -> list[Any]:
    """Eager and compiled, in parallel and one at a time, which must agree bit for bit."""

    def fresh() -> list[tuple[Any, ...]]:
        return [tuple(np.array(a) if isinstance(a, np.ndarray) else a for a in own) for own in arguments]

    made = nki.jit(kernel)[lnc]
    eager = run_ranks(nki.simulate(made), fresh())
    for others in (run_ranks(made, fresh()), run_ranks(made, fresh(), parallel=False)):
        for first, second in zip(eager, others, strict=True):
            np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    return eager


def gathered_in_a_ring(a: Any) -> Any:
    """An all-gather of 4 ranks by hand: each step handles the rows of the rank that they come from."""
    rows, columns = a.shape
    result = hbm((4 * rows, columns))
    held = a
    for step in range(4):
        rank = ncc.collective_permute_implicit_current_processing_rank_id(step, FOUR)
        place = result.ap([[columns, rows], [1, columns]], scalar_offset=rank, indirect_dim=0)
        nisa.dma_copy(dst=place, src=held)
        if step < 3:
            following = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
            ncc.collective_permute_implicit([[held]], [[following]], FOUR)
            held = following
    return result
