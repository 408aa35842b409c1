"""A kernel that was compiled for one call in a JAX program: what its executables run, as long as they live."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki.core.locks import lock
from nki.interop.common.backend_config import BackendConfig
from nki.interop.jax.activity import ACTIVITY, Activity
from nki.kernel import Kernel
from nki.report import Executed, Report
from nki.spec.rule import Finding

Arrays = Sequence[np.ndarray]
Run = Callable[[Arrays], tuple[Arrays, Executed, Sequence[Finding]]]
"""Run a kernel on arrays that it may read but not keep nor change: results, who executed it, and what was noticed (and
warned of) in this run."""


class NotRun(Executed):
    """The kernel was compiled; the program that calls it has not run yet."""

    def __str__(self) -> str:
        return "but not run yet"


@dataclass(frozen=True, slots=True)
class Shaped:
    """Shape, dtype, its number in XLA, and size in bytes of an operand or result."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    number: int
    nbytes: int


class Callee:
    """A compiled kernel as a function of flat arrays.

    Attributes:
        key: says what it computes, where its source is and for which target; equal in every process.
        config: what the custom call says about it.
        inputs, outputs: operands and results.
        report: of its calls; what is only known after one is filled in then.
    """

    def __init__(
        self, config: BackendConfig, inputs: Sequence[Shaped], outputs: Sequence[Shaped], run: Run, report: Report
    ) -> None:
        self.key = config.binary
        self.config = config
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.report = report
        self._run = run
        self._kernel: weakref.ref[Kernel] | None = None

    def tell(self, kernel: Kernel) -> None:
        """Leave the reports of calls at this kernel, which lives as long as its owner wants."""
        self._kernel = weakref.ref(kernel)
        kernel.report = replace(self.report, executed=NotRun())

    def run(self, arrays: Arrays, way: str) -> Arrays:
        """The results, in memory of their own.

        Args:
            way: how JAX called, for the report.
        """
        results, executed, findings = self._run(arrays)
        kernel = self._kernel() if self._kernel is not None else None
        if kernel is not None:
            kernel.report = replace(
                self.report,
                mode=f"{self.report.mode} ({way})",
                executed=executed,
                findings=(*self.report.findings, *findings),
            )
        return results

    def __repr__(self) -> str:
        return self.config.func_name


class Hold:
    """What an executable keeps in place of its callee, so that its end is noticed."""


class Callees:
    """Callees by key; each lives as long as a traced or compiled JAX program refers to it, and a while longer.

    An executable that nobody refers to any more may still have to run: its caller can drop the function before XLA
    begins with a call. So callees stay for `LINGER_SECONDS` after their executable and after the last call of any; of a
    process that never stops calling kernels, the last `MOST_DEPARTED` ones.
    """

    LINGER_SECONDS = 60.0
    MOST_DEPARTED = 256  # eight devices, on each of which XLA lets 32 programs wait

    def __init__(self, activity: Activity) -> None:
        self._lock = lock()
        self._activity = activity
        self._found: weakref.WeakValueDictionary[str, Callee] = weakref.WeakValueDictionary()
        self._departed: deque[tuple[float, Callee]] = deque()

    def one(self, callee: Callee) -> Callee:
        """The callee that already has this key, else this one: equal calls shall be equal in JAX's caches."""
        self.release()
        with self._lock:
            return self._found.setdefault(callee.key, callee)

    def find(self, key: str) -> Callee | None:
        """What a custom call refers to; None if nothing in this process was compiled under that key."""
        return self._found.get(key)

    def hold(self, callee: Callee) -> Hold:
        """What an executable of this callee has to keep."""
        self._activity.expected = True
        hold = Hold()
        weakref.finalize(hold, self._depart, callee).atexit = False
        return hold

    def _depart(self, callee: Callee) -> None:
        # Called by the garbage collector, at any place: no lock is taken.
        self._departed.append((time.monotonic(), callee))

    def release(self, linger: float = LINGER_SECONDS) -> None:
        """Let go of the callees whose executables are gone for so many seconds, in which no kernel was called.

        Those beyond the last `MOST_DEPARTED` go also if kernels were called.
        """
        quiet = self._activity.quiet_for() >= linger
        before = time.monotonic() - linger
        while quiet or len(self._departed) > self.MOST_DEPARTED:
            try:
                left, callee = self._departed.popleft()
            except IndexError:
                return
            if left > before:
                self._departed.appendleft((left, callee))
                return

    def __len__(self) -> int:
        return len(self._found)


CALLEES = Callees(ACTIVITY)
"""XLA finds kernels by a name of the process; `Callees.release` bounds those that no executable has any more."""
