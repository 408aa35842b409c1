"""A compiled kernel, and the memory in which a process keeps those of one kernel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nki.core.locks import lock
from nki.frontend.dependencies.manifest import Manifest
from nki.frontend.results import Delivery
from nki.report import Report
from nki.sim.lifetimes import Lifetimes
from nki.spec.kept_load import KeptLoad
from nki.spec.program import Program
from nki.spec.rule import Finding

if TYPE_CHECKING:
    from nki.native.run.kernel import NativeKernel

_USES = itertools.count()
"""Numbers the uses of all kernels, so that the one that was not used for longest gives up its memory first."""


class Kept:
    """Native code of a kernel, made when it is first run.

    Attributes:
        used: grows with every use in the process; the least one was not used for longest.
    """

    __slots__ = ("_lifetimes", "_lock", "_made", "_native", "used")

    def __init__(self) -> None:
        self.used = next(_USES)
        self._lock = lock()
        self._made = False
        self._lifetimes: dict[int, Lifetimes] = {}
        self._native: NativeKernel | None = None

    def use(self) -> None:
        """Note that it is used now."""
        self.used = next(_USES)

    def lifetimes(self, core: int, program: Program) -> Lifetimes:
        """When the buffers of a core's program live, for the NumPy machine."""
        found = self._lifetimes.get(core)
        if found is None:
            found = self._lifetimes[core] = Lifetimes(program)
        return found

    def native(self, make: Callable[..., NativeKernel | None], *of: Any) -> NativeKernel | None:
        """The native code, if there is any; `make` is called once, with the other arguments."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._native, self._made = make(*of), True  # in this order, as others read without the lock
        return self._native


class Again:
    """What a call of a compiled kernel makes, and the next one uses as well.

    Attributes:
        delivery: makes results of storages.
        report: of the last call without a finding of its own, if it was made in this mode and setting.
    """

    __slots__ = ("delivery", "report", "setting")

    def __init__(self) -> None:
        self.delivery: Delivery | None = None
        self.report: Report | None = None
        self.setting: object = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """Verified programs, one per core, read back from IR, with the tree of results and what was found.

    Attributes:
        written: positions of the inputs that some core writes to.
        kept: what its calls have in common.
        origin: "compiled" in this call, from "memory" or from "disk".
        doubt: why the next call has to trace the kernel anew; empty if it need not.
        artifact: the key of its programs on disk; empty if they are not there.
        kept_loads: what its report says of them.
        again: what its calls need again and again, made by the first one.
    """

    programs: tuple[Program, ...]
    result: Any
    findings: tuple[Finding, ...]
    kernel_hash: str
    written: frozenset[int]
    kept: Kept
    origin: str = "compiled"
    doubt: str = ""
    artifact: str = ""
    kept_loads: tuple[KeptLoad, ...] = ()
    again: Again = field(default_factory=Again, init=False, repr=False, compare=False)


Cache = dict[Any, tuple[Manifest, Compiled]]
"""By target, options and arguments; kernels that are traced in every call by what the trace gives."""
TRACED = "traced"
"""Begins the keys of kernels that are traced in every call."""
_MOST_KEPT = 256
"""Programs of a kernel that are kept in memory, with their native code, the least recently used ones removed first."""
_MOST_TRACED = 8


def remember(cache: Cache, key: Hashable, entry: tuple[Manifest, Compiled]) -> None:
    """Keep a program in memory; a number that is another one in every call must not fill it."""
    cache[key] = entry
    over = len(cache) - _MOST_KEPT
    for oldest in sorted(list(cache), key=lambda each: _use_of(cache, each))[:over] if over > 0 else ():
        cache.pop(oldest, None)


def _use_of(cache: Cache, key: Any) -> int:
    found = cache.get(key)  # another thread may have removed it
    return -1 if found is None else found[1].kept.used


def keep_traced(cache: Cache, key: Hashable, entry: tuple[Manifest, Compiled]) -> None:
    """Keep a kernel that is traced in every call under what the trace gave, and few of those that differ.

    Other threads may call the kernel meanwhile.
    """
    others = [known for known in list(cache) if known[0] == TRACED]
    for oldest in others[: max(0, len(others) + 1 - _MOST_TRACED)]:
        cache.pop(oldest, None)
    cache[key] = entry
