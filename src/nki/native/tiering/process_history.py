"""When compiling pays a kernel that many processes call once each, as scripts and tests do.

No such process calls it often enough. So a number is kept beside the native code: how many processes called the kernel
before. Once they spent as much as compiling takes, the next one compiles; all later ones take the finished plan. Large
kernels, beside whose work compiling is nothing, do not wait that long.
"""

from __future__ import annotations

from collections.abc import Collection

from nki.native.records.forms import Form
from nki.native.tiering.compilation_policy import Functions
from nki.store.keys import key_of

_PLANNING = 75e-6
"""Seconds for an instruction that a process needs, beside NumPy, if there is no plan to take: for reading the program,
the proofs, and the plan."""

_LARGE = 10.0
"""How often the time of compiling everything fits into NumPy's time for one call of a large kernel, at least."""
_DIGITS = 10
"""No number of processes has as many."""


class Earlier:
    """The processes that called a kernel before this one.

    Args:
        functions: know what is compiled, and keep the number.
        plan: the key of the kernel's plan; empty if nothing is kept.
    """

    def __init__(self, functions: Functions, plan: str) -> None:
        self._functions = functions
        self._key = key_of("calls", plan=plan) if plan else ""
        data = functions.kept(self._key) if self._key else None
        self._processes = int(data) if data is not None and data.isdigit() and len(data) < _DIGITS else 0

    def paid(self, weights: Collection[tuple[Form, float]], instructions: int) -> bool:
        """Whether to compile what is not compiled yet at the first call in this process.

        Args:
            weights: the forms of the kernel that can be compiled, with the seconds that NumPy takes for each in a call.
            instructions: of the kernel's programs, those of a loop counted once.
        """
        lacking, seconds = self._functions.lacking(form for form, _ in weights)
        if sum(weight for _, weight in weights) >= _LARGE * seconds:
            return True
        spent = sum(weight for form, weight in weights if id(form) in lacking) + _PLANNING * instructions
        return self._processes > 0 and self._processes * spent >= seconds

    def count(self) -> None:
        """Count this process, for the next ones."""
        if self._key:
            self._functions.keep(self._key, str(self._processes + 1).encode())
            self._key = ""
