"""What goes wrong among ranks: who is told, and that all of them end."""

from __future__ import annotations

import linecache
import re
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
from nki.ranks.protocol import listed
from nki.report import NkiWarning
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


def line_of(error: NkiError) -> str:
    """The line of the kernel that an error points at."""
    frame = error.location.frames[0]
    assert frame.file == __file__
    return linecache.getline(frame.file, frame.line).strip()


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
    assert (
        "rank 0 waits at all_reduce among ranks 0, 1, 2, but rank 1 has ended without calling one, rank 2 waits at"
        in error.message
    )
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


def test_a_circle_is_told_as_a_whole() -> None:
    """Rank 0 waits for rank 1, which waits for rank 2, which waits for rank 0."""

    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        for first, second in ([(0, 1), (0, 2)], [(1, 2), (0, 1)], [(0, 2), (1, 2)])[rank]:
            ncc.all_reduce([a], [result], ncc.ReplicaGroup([[first, second]]), nl.add)
        return result

    message = failing(kernel, 3, nki.jit).message
    assert re.match(
        r"rank 0 waits at all_reduce among ranks 0, 1, but rank 1 waits at all_reduce among ranks 1, 2, \S+, "
        r"rank 2 waits at all_reduce among ranks 0, 2, \S+$",
        message,
    )


def test_ranks_at_one_line_are_told_together() -> None:
    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        ncc.all_reduce([a], [result], FOUR, nl.add)
        if rank != 3:
            ncc.all_reduce([a], [result], FOUR, nl.add)
        return result

    message = failing(kernel, 4, nki.jit).message
    assert "but ranks 1, 2 wait at all_reduce among ranks 0, 1, 2, 3, " in message
    assert "rank 3 has ended, after its all_reduce, " in message and message.count(__file__) == 2


def test_many_ranks_are_told_in_runs() -> None:
    assert listed([0, 1, 5]) == "0, 1, 5"
    assert listed([*range(64)]) == "0 to 63"
    assert listed([*range(6), 9, 10, 12, *range(20, 23)]) == "0 to 5, 9, 10, 12, 20 to 22"


def test_a_warning_of_a_rank_points_at_the_call_of_all() -> None:
    def kernel(a: Any) -> Any:
        both = hbm((8, 5))
        nisa.dma_copy(dst=both[0:4], src=a)
        nisa.dma_copy(dst=both[4:8], src=a)
        ncc.all_reduce([both[0:4]], [both[2:6]], ncc.ReplicaGroup([[0, 1]]), nl.add)
        return both

    with pytest.warns(NkiWarning, match="access.overlap") as told:
        run_ranks(nki.simulate(kernel), [(a,) for a in sources(2, (4, 5))])
    assert {each.filename for each in told} == {__file__}


@pytest.mark.parametrize(
    ("shapes", "dtypes", "told"),
    [
        (
            ((4, 5), (2, 5)),
            ("f4", "f4"),
            "it has float32[2, 5], float32[2, 5], the other one float32[4, 5], float32[4, 5]",
        ),
        (((4, 5), (4, 5)), ("f4", "i4"), "it has int32[4, 5], int32[4, 5], the other one float32[4, 5], float32[4, 5]"),
    ],
)
def test_what_differs_is_told_and_nothing_else(shapes: Any, dtypes: Any, told: str) -> None:
    def kernel(a: Any) -> Any:
        result = hbm(a.shape, a.dtype)
        ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1]]), nl.add)
        return result

    arrays = [(np.ones(shape, dtype),) for shape, dtype in zip(shapes, dtypes, strict=True)]
    with pytest.raises(DivergenceError) as caught:
        run_ranks(nki.jit(kernel), arrays)
    assert caught.value.code == "ranks.mismatch" and caught.value.message.endswith(told)


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
    assert line_of(error).startswith("ncc.all_reduce([a], [hbm(a.shape)], FOUR")
    assert "rank 2 calls all_reduce, but replica_group is [[0, 1]]" in failing(outside, 3, nki.jit).message


def test_a_chunk_beyond_the_end() -> None:
    def kernel(a: Any, table: Any) -> Any:
        result = hbm(a.shape)
        ncc.all_to_all_v([a], [result], ncc.ReplicaGroup([[0, 1]]), table)
        return result

    table = np.array([[1, 9], [0, 12], [0, 0]], np.uint32)
    match = "all_to_all_v of rank 0 sends 9 elements from 12 of 20 to 0 of 20 of rank 1"
    with pytest.raises(ExecutionError, match=match) as caught:
        run_ranks(nki.jit(kernel), [(a, table.copy()) for a in sources(2, (4, 5))])
    assert line_of(caught.value).startswith("ncc.all_to_all_v(")


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
