"""What tests of whole kernels share: running one in every way, and threads that run one after the other."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import nki
from nki.core.errors import NkiError
from nki.native.plan import work_sharing
from nki.native.primitives.abi import JUMP, LENGTH_BITS
from nki.native.primitives.control import FOR_NEXT, FOR_START, WHILE_NEXT, WHILE_START
from nki.native.run.team import Team
from nki.native.tiering.compilation_policy import Functions
from tests.support import environment

Arrays = tuple[np.ndarray, ...]
_RECORD = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_LENGTH = (1 << LENGTH_BITS) - 1


def seen(kernel: Any, arrays: Arrays, calls: int = 2) -> list[Any]:
    """What a caller sees of some calls: results, warnings or the error of each, and the arguments in the end."""
    found: list[Any] = []
    for _ in range(calls):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = kernel(*arrays)
            except NkiError as error:
                found.append((error.code, str(error.location)))
                continue
        results = results if isinstance(results, tuple) else (results,)
        codes = sorted(finding.code for finding in kernel.report.findings)
        found.append(([result.tobytes() for result in results], codes))
    return [*found, [array.tobytes() for array in arrays]]


def by_numpy(function: Callable[..., Any], make: Callable[[], Arrays], lnc: int = 1) -> list[Any]:
    """What is seen of a compiled kernel that NumPy executes."""
    with environment(NKI_NATIVE="0"):
        return seen(nki.jit(function)[lnc], make())


def natively(
    function: Callable[..., Any], make: Callable[[], Arrays], lnc: int = 1, threads: int = 1, calls: int = 2
) -> list[Any]:
    """The same of one that is executed natively."""
    with environment(NKI_NATIVE="always", NKI_THREADS=str(threads)):
        return seen(nki.jit(function)[lnc], make(), calls)


@contextmanager
def one_after_the_other(order: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Two threads that run in this order from barrier to barrier, all that can be shared being shared.

    Threads that touch the same bytes without a barrier then differ from one thread, always and not by chance. Yields
    the numbers of barriers that were met.
    """
    met: list[int] = []
    plain = Functions.barrier.fget  # type: ignore[attr-defined]
    barriers: set[int] = set()
    jumps: set[int] = set()

    def barrier(functions: Functions) -> int:
        found: int = plain(functions)
        barriers.add(found)
        jumps.update(functions.control[name] for name in (FOR_START, FOR_NEXT, WHILE_START, WHILE_NEXT))
        return found

    def alone(run: Any, words: int, at: int, end: int, context: int) -> tuple[int, bool]:
        """One thread up to a barrier: where that is, and whether a record was left to Python there."""
        record = (ctypes.c_int64 * end).from_address(words)
        while at < end and record[at] not in barriers:
            after = at + (record[at + 1] & _LENGTH)
            if record[at] in jumps:
                status = _RECORD(record[at])(words + 8 * at, context, 0, 0)
                after = record[at + 3] if status == JUMP else after
            else:
                status = run(words, at, after, context) != after
            if status == 1:
                return at, True
            at = after
        return at, False

    def run(team: Any, run: Any, words: int, start: int, end: int) -> int:
        record = (ctypes.c_int64 * end).from_address(words)
        at, count = start, 0
        while at < end:
            stopped = {n: alone(run, words, at, end, team._contexts[n].address) for n in order}
            at, left = stopped[0]
            if left:
                return at
            assert stopped[1] == stopped[0], "threads take the same way"
            count += 1
            at += 0 if at == end else record[at + 1] & _LENGTH
        met.append(count)
        return end

    with monkeypatch.context() as patch:
        patch.setattr(Functions, "barrier", property(barrier))
        patch.setattr(Team, "run", run)
        patch.setattr(work_sharing, "_SMALL", 0)
        patch.setattr("nki.native.run.team._processors", lambda: 2)
        yield met
