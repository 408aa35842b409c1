"""What goes wrong among ranks: who is told, and that all of them end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import collectives as ncc
from nki.core.errors import DivergenceError, ExecutionError, LaunchError, NkiError
from nki.core.source import UNKNOWN
from nki.driver import gate
from nki.runtime import run_ranks
from tests.runtime.several_ranks import FOUR, gathered_in_a_ring, hbm, sources


def failing(kernel: Callable[..., Any], count: int, run: Callable[..., Any]) -> NkiError:
    """The error, which is the same one in parallel and one at a time."""
    found = []
    for parallel in (True, False):
        with pytest.raises(NkiError) as caught:
            run_ranks(run(kernel), [(a, rank) for rank, a in enumerate(sources(count, (4, 5)))], parallel=parallel)
        found.append(caught.value)
    first, second = found
    assert first.to_json() == second.to_json() and first.__notes__ == second.__notes__
    return first


@pytest.mark.parametrize("run", [nki.jit, nki.simulate])
def test_who_waits_for_a_rank_that_has_ended_is_told(run: Callable[..., Any]) -> None:
    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        if rank != 1:
            ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1, 2]]), nl.add)
        else:
            nisa.dma_copy(dst=result, src=a)
        return result

    error = failing(kernel, 3, run)
    assert isinstance(error, DivergenceError) and error.code == "ranks.deadlock"
    assert "rank 0 waits at all_reduce among ranks 0, 1, 2, but rank 1 has ended, rank 2 waits at" in error.message
    assert error.location.frames[0].file == __file__


@pytest.mark.parametrize("run", [nki.jit, nki.simulate])
def test_different_calls_do_not_meet(run: Callable[..., Any]) -> None:
    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1]]), nl.add if rank else nl.maximum)
        return result

    error = failing(kernel, 2, run)
    assert error.code == "ranks.mismatch" and "rank 1 is at all_reduce among ranks 0, 1" in error.message
    assert error.__notes__ == ["on rank 1 of 2"]


def test_overlapping_lists_cannot_all_go_on() -> None:
    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        first, second = ncc.ReplicaGroup([[0, 1], [2]]), ncc.ReplicaGroup([[1, 2], [0]])
        ncc.collective_permute([a], [result], [(0, 1), (1, 0)] if rank == 0 else [(1, 2), (2, 1)])
        return result, first, second

    def two(a: Any, rank: int) -> Any:
        return kernel(a, rank)[0]

    assert failing(two, 3, nki.jit).code == "ranks.deadlock"


@pytest.mark.parametrize("run", [nki.jit, nki.simulate])
def test_an_error_on_one_rank_ends_all(run: Callable[..., Any]) -> None:
    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        if rank == 1:
            nisa.dma_copy(dst=result, src=a[0:3])
        ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1, 2]]), nl.add)
        return result

    error = failing(kernel, 3, run)
    assert error.code.startswith("dma_copy.")
    assert error.__notes__ == ["on rank 1 of 3"]


def test_ranks_that_are_not_there_or_in_no_list() -> None:
    def wide(a: Any, rank: int) -> Any:
        ncc.all_reduce([a], [hbm(a.shape)], FOUR, nl.add)
        return a

    def outside(a: Any, rank: int) -> Any:
        ncc.all_reduce([a], [hbm(a.shape)], ncc.ReplicaGroup([[0, 1]]), nl.add)
        return a

    error = failing(wide, 2, nki.jit)
    assert isinstance(error, LaunchError) and "but this launch has 2 ranks" in error.message
    assert "rank 2 calls all_reduce, but replica_group is [[0, 1]]" in failing(outside, 3, nki.jit).message


def test_a_chunk_beyond_the_end() -> None:
    def kernel(a: Any, table: Any) -> Any:
        result = hbm(a.shape)
        ncc.all_to_all_v([a], [result], ncc.ReplicaGroup([[0, 1]]), table)
        return result

    table = np.array([[1, 9], [0, 12], [0, 0]], np.uint32)
    with pytest.raises(ExecutionError, match="sends 9 elements from 12 of 20 to 0 of 20"):
        run_ranks(nki.jit(kernel), [(a, table.copy()) for a in sources(2, (4, 5))])


def test_parallel_is_a_truth_value() -> None:
    with pytest.raises(NkiError, match="parallel is int 2"):
        run_ranks(lambda: None, [()], parallel=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "keywords"), [([], None), ("ab", None), ([1, 2], None), ([(1,)], []), ([()] * 65, None)]
)
def test_arguments_are_those_of_each_rank(arguments: Any, keywords: Any) -> None:
    with pytest.raises(LaunchError) as caught:
        run_ranks(lambda: None, arguments, keywords)
    assert caught.value.code == "ranks.arguments"


def test_an_argument_that_is_refused_points_at_the_call() -> None:
    with pytest.raises(NkiError) as caught:
        run_ranks(nki.jit(gathered_in_a_ring), [(np.zeros(2),)])
    assert caught.value.code == "argument.dtype"
    assert caught.value.location.frames[0].file == __file__


def test_what_cannot_be_compiled_is_tried_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def refuse(*args: Any) -> Any:
        tried.append(args)
        time.sleep(0.05)
        raise ExecutionError("memory.capacity", "too large", location=UNKNOWN)

    monkeypatch.setattr(gate, "compile_kernel", refuse)
    with pytest.raises(ExecutionError, match="too large") as caught:
        run_ranks(nki.jit(gathered_in_a_ring), [(a,) for a in sources(4, (4, 5))])
    assert len(tried) == 1 and caught.value.__notes__ == ["on rank 0 of 4"]


@pytest.mark.parametrize("parallel", [True, False])
def test_an_error_among_some_ranks_lets_others_meet(parallel: bool) -> None:
    """The error of the rank that failed by itself is shown, whoever came first."""
    order: list[int] = []

    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        if parallel and rank in (0, 2):
            time.sleep(0.05)
        ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1], [2, 3]]), nl.add if rank != 2 else nl.maximum)
        order.append(rank)
        if rank == 0:
            ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1, 2, 3]]), nl.add)
        return result

    with pytest.raises(DivergenceError) as caught:
        run_ranks(nki.simulate(kernel), [(a, rank) for rank, a in enumerate(sources(4, (4, 5)))], parallel=parallel)
    assert caught.value.code == "ranks.mismatch" and caught.value.__notes__ == ["on rank 3 of 4"]
    assert set(order) <= {0, 1}
