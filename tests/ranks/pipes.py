"""Two ranks in two processes that meet over a pipe, written against `nki.ranks.protocol` alone; and what they run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.language as nl
from nki import collectives as ncc
from nki.core.errors import NkiError
from nki.ranks import Meeting, use
from nki.ranks.protocol import check_same_call, deadlock, same_members

BOTH = ncc.ReplicaGroup([[1, 0]])
"""In an order that is not that of their numbers."""


@dataclass(frozen=True)
class PipeRank:
    """One of two ranks; the other one is at the other end of the pipe."""

    pipe: Connection
    rank: int
    patience: float = 60.0
    """Seconds that the other rank has to come."""

    size: int = 2

    def meet(self, meeting: Meeting) -> list[Any]:
        if meeting.members == (self.rank,):
            return [meeting.value]
        other = 1 - self.rank
        try:
            self.pipe.send(meeting)
            if not self.pipe.poll(self.patience):
                raise deadlock(self.rank, meeting, {other: f"did not come within {self.patience:g} s"})
            theirs = self.pipe.recv()
        except (EOFError, OSError):
            raise deadlock(self.rank, meeting, {other: "has ended"}) from None
        if not isinstance(theirs, Meeting):
            raise deadlock(self.rank, meeting, {other: f"failed: {theirs}"})
        if not same_members(meeting, theirs):
            raise deadlock(self.rank, meeting, {other: theirs})
        check_same_call(self.rank, meeting, other, theirs)
        values = {self.rank: meeting.value, other: theirs.value}
        return [values[member] for member in meeting.members]


def _hbm(shape: tuple[int, ...], dtype: Any) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def reduced(a: Any, b: Any) -> Any:
    result = _hbm(a.shape, a.dtype)
    ncc.all_reduce([a], [result], BOTH, nl.add)
    return result


def gathered(a: Any, b: Any) -> Any:
    result = _hbm((2 * a.shape[0], a.shape[1]), a.dtype)
    ncc.all_gather([a], [result], BOTH, 0)
    return result


def permuted(a: Any, b: Any) -> Any:
    ncc.collective_permute([a], [b], [(0, 1)])
    return b


KERNELS = {"all_reduce": reduced, "all_gather": gathered, "permute": permuted}
MODES: dict[str, Callable[[Any], Any]] = {"compiled": nki.jit, "eager": lambda kernel: nki.simulate(nki.jit(kernel))}
DTYPES: dict[str, Any] = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
CASES = [(kernel, mode, dtype) for kernel in KERNELS for mode in MODES for dtype in DTYPES]


def arguments(rank: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.random.default_rng(rank).normal(size=(4, 6)) * 4
    return values.astype(DTYPES[dtype]), np.full((4, 6), rank, DTYPES[dtype])


def kernel_of(kernel: str, mode: str) -> Any:
    return MODES[mode](KERNELS[kernel])


def results(own: PipeRank) -> list[np.ndarray]:
    """What one rank gets in all cases."""
    with use(own):
        return [kernel_of(kernel, mode)(*arguments(own.rank, dtype)) for kernel, mode, dtype in CASES]


def differing(a: Any, rank: int) -> Any:
    """Each rank has another operator."""
    result = _hbm(a.shape, a.dtype)
    ncc.all_reduce([a], [result], BOTH, nl.add if rank else nl.maximum)
    return result


def error_of(own: PipeRank, kernel: Any, *given: Any) -> NkiError:
    """What a rank is told; the kernel cannot end."""
    try:
        with use(own):
            nki.jit(kernel)(*given)
    except NkiError as error:
        return error
    raise AssertionError("nobody met it")


def second(pipe: Connection, answers: Connection) -> None:
    """What the process of rank 1 does: all cases, a call that differs, an error, and an end without a word."""
    own = PipeRank(pipe, 1)
    answers.send(results(own))
    answers.send(error_of(own, differing, arguments(1, "float32")[0], 1).message)
    pipe.send("it had no argument")
    pipe.recv()
    answers.send(None)
    os._exit(3)
