"""What the Python of a kernel depended on, by value, so that a compiled kernel is used again only while that holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import is_
from types import CodeType, FunctionType
from typing import Any

from nki.frontend.dependencies.foreign_code import origin_of_code
from nki.frontend.dependencies.identity_checks import Probes
from nki.frontend.dependencies.reachable import ReachableWalk


@dataclass(frozen=True, slots=True)
class Manifest:
    """A kernel's function and everything that it can read, at one moment.

    Attributes:
        digest: SHA-256 of it by value, the same in every process; empty if something has no value to compare.
        reason: what has none, in words; empty if there is a digest.
    """

    function: FunctionType
    references: tuple[Any, ...]
    digest: str
    reason: str
    _probes: Probes
    _codes: dict[int, CodeType]

    def untouched(self, references: tuple[Any, ...] = ()) -> bool:
        """Whether nothing was even replaced by an equal value: True is certain, False says to compare by value.

        Args:
            references: what the arguments of the call in question name; see `manifest_of`.
        """
        mine = self.references
        if (references or mine) and not (len(references) == len(mine) and all(map(is_, references, mine))):
            return False
        return self._probes.untouched()

    def renewed(self, references: tuple[Any, ...] = ()) -> Manifest:
        """How things are now: this object if nothing was touched, else a new one. Equal digests mean equal values."""
        return self if self.untouched(references) else manifest_of(self.function, references)

    def doubt_after(self, executed: Iterable[CodeType]) -> str:
        """Why a trace that started from this manifest must not be remembered; empty if it may.

        Args:
            executed: code objects that were seen on the stack during the trace.
        """
        if self.reason:
            return self.reason
        for code in executed:
            if id(code) not in self._codes and origin_of_code(code) == "user":
                return f"{code.co_qualname} was called in a way that cannot be seen from the source of the kernel"
        if self.renewed(self.references).digest != self.digest:
            return f"{self.function.__qualname__} changes what it reads itself"
        return ""


def manifest_of(function: Callable[..., Any], references: tuple[Any, ...] = ()) -> Manifest:
    """Look at everything that a kernel can read.

    Nothing is run. What the names of a function stand for is looked up, functions and classes are followed, and values
    are hashed. That covers more than one trace reads, never less: what cannot be followed, such as a clock, a file or
    the environment, is a reason not to remember the kernel.

    Args:
        function: the undecorated function.
        references: what the arguments name beside plain values and arrays: classes, functions, other objects.
    """
    kernel = inspect.unwrap(function)
    if not isinstance(kernel, FunctionType):
        raise TypeError(f"{function!r} is not a Python function")
    try:
        walk = ReachableWalk(kernel, references)
    except RecursionError:
        return Manifest(kernel, references, "", "a value outside of the kernel is nested too deeply", Probes(), {})
    reasons = walk.writer.reasons
    digest = "" if reasons else walk.writer.digest()
    return Manifest(kernel, references, digest, "; ".join(reasons[:3]), walk.writer.probes, walk.codes)
