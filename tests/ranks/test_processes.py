"""A second implementation of the meeting of ranks: two processes over a pipe, with the bytes of threads."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nki.core.errors import DivergenceError, NkiError
from nki.runtime import run_ranks
from tests.ranks import pipes


@dataclass
class Outcome:
    """Of two processes: the results of all cases by rank, and the errors of what cannot end."""

    results: list[list[np.ndarray]]
    differing: tuple[NkiError, str]
    failed: NkiError
    ended: NkiError
    status: int | None


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")
    (mine, theirs), (heard, said) = context.Pipe(), context.Pipe(duplex=False)
    process = context.Process(target=pipes.second, args=(theirs, said))
    process.start()
    theirs.close()
    said.close()
    own, a = pipes.PipeRank(mine, 0), pipes.arguments(0, "float32")[0]
    first = pipes.results(own)
    second = heard.recv()
    differing = pipes.error_of(own, pipes.differing, a, 0), heard.recv()
    failed = pipes.error_of(own, pipes.reduced, a, a)
    heard.recv()
    process.join()
    yield Outcome([first, second], differing, failed, pipes.error_of(own, pipes.reduced, a, a), process.exitcode)
    mine.close()


@pytest.mark.parametrize("number", range(len(pipes.CASES)), ids=lambda number: " ".join(pipes.CASES[number]))
def test_the_bytes_are_those_of_threads(number: int, outcome: Outcome) -> None:
    kernel, mode, dtype = pipes.CASES[number]
    given = [pipes.arguments(rank, dtype) for rank in range(2)]
    expected = run_ranks(pipes.kernel_of(kernel, mode), given)
    for rank in range(2):
        np.testing.assert_array_equal(outcome.results[rank][number], expected[rank])
        assert outcome.results[rank][number].tobytes() == np.asarray(expected[rank]).tobytes()
    assert not np.array_equal(given[0][0], given[1][0]), "else nobody can tell whose values came"


def at_a_collective(error: Any) -> None:
    assert isinstance(error, DivergenceError)
    assert error.location.frames[0].file == pipes.__file__


def test_other_calls_are_told_to_both_with_both_lines(outcome: Outcome) -> None:
    error, theirs = outcome.differing
    at_a_collective(error)
    assert error.code == "ranks.mismatch"
    line = f"pipes.py:{error.location.frames[0].line}"
    assert "rank 0 is at all_reduce among ranks 1, 0 while rank 1 waits at all_reduce" in error.message
    assert "rank 1 is at all_reduce among ranks 1, 0 while rank 0 waits at all_reduce" in theirs
    assert line in error.message and line in theirs


def test_an_error_of_one_rank_reaches_the_other(outcome: Outcome) -> None:
    at_a_collective(outcome.failed)
    assert outcome.failed.code == "ranks.deadlock"
    assert "rank 0 waits at all_reduce among ranks 1, 0, but rank 1 failed: it had no" in outcome.failed.message


def test_a_rank_whose_process_died_is_told(outcome: Outcome) -> None:
    assert outcome.status == 3
    at_a_collective(outcome.ended)
    assert outcome.ended.code == "ranks.deadlock" and "rank 1 has ended" in outcome.ended.message


def test_a_rank_that_never_comes_is_told() -> None:
    mine, theirs = multiprocessing.get_context("spawn").Pipe()
    a = pipes.arguments(0, "float32")[0]
    with mine, theirs:
        error = pipes.error_of(pipes.PipeRank(mine, 0, patience=0.05), pipes.reduced, a, a)
    at_a_collective(error)
    assert error.code == "ranks.deadlock" and "but rank 1 did not come within 0.05 s" in error.message
