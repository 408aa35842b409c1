"""Compiled functions: which exist, and when compiling one pays.

Compiling takes as long as NumPy takes for some hundred instructions, and both give the same bits. So an instruction is
executed by NumPy until that took as long for its form as compiling takes, unless the function is on disk already.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from nki.core.locks import cached_property
from nki.native.call_context import CallContext
from nki.native.objects.library import Library, library, required
from nki.native.primitives.abi import EXPONENTS
from nki.native.primitives.control import CONTROL
from nki.native.primitives.module import BARRIER, HELPERS, MODULE, NAMES, ORDER, RUN, module_text
from nki.native.records.forms import Form
from nki.options import Options

_COMPILE_SECONDS = 0.03
"""What compiling one function takes, as measured by benchmarks/native_primitives.py."""
_AGAIN_SHARE = 0.07
"""The part of the time of compiling after which a form is compiled if the same line of a kernel, or a compiled kernel,
needs it again in another call.
"""
_BASE_SECONDS = 0.3
"""What compiling the functions takes that every record needs."""
_SEED = 20_011
"""For the check of dot products; any odd number."""


class Functions:
    """The functions of a process.

    Attributes:
        always: compile at the first use, whether it pays or not.
    """

    def __init__(self, library: Library, always: bool = False) -> None:
        self._library = library
        self.always = always
        self._spent = 0.0
        self._loaded = False

    def ready(self, form: Form, cost: float = 0.0, now: bool = False, look: bool = True, again: bool = False) -> bool:
        """Whether the function of a form is there; compiles it where that pays, or where `now` asks for it.

        If it is not there, NumPy is going to spend `cost` seconds on the form, unless that is told later with `spend`.
        With `look`, what is on disk is loaded. A kernel that is called `again` is likely to be called more often.
        """
        if form.function:
            return True
        native = form.native
        if native is None:
            return False
        form.spent += cost
        self._spent += cost
        share = _AGAIN_SHARE if again else 1.0
        if not self._base_ready(now or self._spent >= _BASE_SECONDS * share):
            return False
        template = native.template
        there = now or self.always or (look and self._library.has(template.name))
        if not there and form.spent < _COMPILE_SECONDS * share:
            return False
        form.function = self._library.address(template.name, template.text)
        return True

    def spend(self, form: Form, seconds: float) -> None:
        """NumPy spent so long on an instruction of a form that was not `ready`."""
        form.spent += seconds
        self._spent += seconds

    def _base_ready(self, now: bool) -> bool:
        """Whether the module that every record needs is there."""
        if not self._loaded:
            self._loaded = now or self.always or self._library.has(MODULE)
        return self._loaded

    def lacking(self, forms: Iterable[Form]) -> tuple[frozenset[int], float]:
        """Which of these forms have to be compiled, by identity, and the seconds that it takes."""
        there = self._loaded or self._library.has(MODULE)
        needed = frozenset(
            id(form)
            for form in forms
            if form.native is not None and not form.function and not self._library.has(form.native.template.name)
        )
        return needed, len(needed) * _COMPILE_SECONDS + (0.0 if there else _BASE_SECONDS)

    def found(self, names: Sequence[str]) -> list[int] | None:
        """The addresses of functions that need not be compiled; None if one has to be."""
        base = self._library.found(MODULE, NAMES)
        if base is None:
            return None
        self._loaded = True
        addresses = []
        for name in names:
            known = base if name in base else self._library.found(name, (name,))
            if known is None:
                return None
            addresses.append(known[name])
        return addresses

    def names(self, forms: Iterable[Form]) -> dict[int, str]:
        """The names of the functions of these forms and of those that every record may need, by address."""
        own = {form.function: form.native.template.name for form in forms if form.native is not None and form.function}
        return own | {address: name for name, address in self._base.items()}

    def kept(self, key: str) -> bytes | None:
        """Data that is kept beside the native code."""
        return self._library.kept(key)

    def keep(self, key: str, data: bytes) -> None:
        """Keep data beside the native code."""
        self._library.keep(key, data)

    def context(self, bases: int = 1) -> CallContext:
        """A context with the helpers of the base module."""
        helpers = {word: self._base[name] for word, name in HELPERS.items()}
        return CallContext(helpers | {EXPONENTS: self._exponents}, bases)

    @cached_property
    def run(self) -> Callable[[int, int, int, int], int]:
        """``run(words, start, end, context)``: execute records; returns where it stopped."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        return kind(self._base[RUN])

    @cached_property
    def _exponents(self) -> int:
        """From which sum of exponents on dot products of this processor are in the defined order."""
        return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._base[ORDER])(_SEED)

    @property
    def barrier(self) -> int:
        """The address of the function that waits for the other threads."""
        return self._base[BARRIER]

    @cached_property
    def control(self) -> Mapping[str, int]:
        """The addresses of the functions that steer, by name."""
        return {name: self._base[name] for name in CONTROL}

    @cached_property
    def _base(self) -> dict[str, int]:
        return self._library.addresses(MODULE, NAMES, module_text)


@cache  # two for each library, of which there are at most 16
def _functions(library: Library, always: bool) -> Functions:
    return Functions(library, always)


def functions(options: Options) -> Functions | None:
    """The functions that a call with these options may use; None if everything is NumPy's."""
    by_numpy = "NKI_PRECISE_FP=0" if not options.precise_fp else "stochastic rounding"
    if not options.precise_fp or options.stochastic_rounding:
        if options.require_native:
            raise required(f"{by_numpy} is executed by NumPy alone")
        return None
    found = library(options)
    return None if found is None else _functions(found, options.native == "always")
