"""Collects refused kernels: what each is called with, where its error points, and the change that makes it legal."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import nki
from nki.core.errors import NkiError
from nki.report import NkiWarning
from tests.goldens import Goldens
from tests.rejected.texts import dedent, kept_text
from tests.support import environment

ROOT = Path(__file__).resolve().parents[2]
Kernel = Callable[..., Any]

X = np.arange(32, dtype=np.float32).reshape(4, 8)
WIDE = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
INTS = np.arange(32, dtype=np.int32).reshape(4, 8)


@dataclass(frozen=True)
class Cure:
    """What the message's fix asks for.

    Attributes:
        edits: (old, new) texts in the source of the kernel, each found once.
        args, target, lnc: what the cured kernel is called with; None: as the refused one.
    """

    edits: tuple[tuple[str, str], ...] = ()
    args: tuple[Any, ...] | None = None
    target: str | None = None
    lnc: int | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel that must be refused.

    Attributes:
        kernel: the function, or a kernel made of it.
        code: code of the error.
        args, target, lnc: what it is called with.
        at: the source text that the caret underlines; "" if there is no source.
        cure: the change after which it is accepted; None if the fix is to leave the call out.
        defects: what is wrong with the product here until it is mended, by aspect: modes, words, caret or cure.
        only_calls: eager runs accept it, with a warning (tests/frontend/test_capacity.py).
        jit: what makes a kernel of the function.
    """

    kernel: Any
    code: str
    args: tuple[Any, ...]
    target: str
    lnc: int | None
    at: str
    cure: Cure | None
    defects: dict[str, str]
    only_calls: bool = False
    jit: Callable[[Any], Any] = nki.jit

    @property
    def function(self) -> Kernel:
        """The undecorated function."""
        function: Kernel = self.kernel.func if hasattr(self.kernel, "func") else self.kernel
        return function

    @property
    def name(self) -> str:
        return self.function.__name__


CALL = "made(*_fresh(args))"
"""Where errors about the call of a kernel point: the line of this file that calls it."""


def edit(*texts: str) -> Cure:
    """A cure that replaces the first text by the second, the third by the fourth, and so on."""
    return Cure(edits=tuple(zip(texts[::2], texts[1::2], strict=True)))


def call(*args: Any, target: str | None = None, lnc: int | None = None) -> Cure:
    """A cure that calls the same kernel in another way."""
    return Cure(args=args or None, target=target, lnc=lnc)


@dataclass
class Topic:
    """The refused kernels of one file."""

    file: str
    cases: list[Case] = field(default_factory=list)
    jit: Callable[[Any], Any] = nki.jit

    def __post_init__(self) -> None:
        """The messages stand beside the kernels."""
        self.goldens = Goldens(self.file, lambda: [case.name for case in self.cases])

    def refused(
        self,
        code: str,
        *args: Any,
        at: str,
        cure: Cure | None,
        target: str = "trn2",
        lnc: int | None = None,
        defects: dict[str, str] | None = None,
        only_calls: bool = False,
    ) -> Callable[[Any], Any]:
        """Decorator of a kernel that must be refused."""

        def note(kernel: Any) -> Any:
            self.cases.append(Case(kernel, code, args, target, lnc, at, cure, defects or {}, only_calls, self.jit))
            return kernel

        return note


@cache
def errors(case: Case) -> tuple[NkiError, NkiError]:
    """What the kernel is refused for, in eager and in compiled mode."""
    compiled = _error(case, eager=False)
    return compiled if case.only_calls else _error(case, eager=True), compiled


def _error(case: Case, *, eager: bool) -> NkiError:
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=case.target):
        try:
            _run(case.kernel, case.args, case.lnc, eager, case.jit)
        except NkiError as error:
            return error
    raise AssertionError(f"{case.name} was accepted in {'eager' if eager else 'compiled'} mode")


def check_cure(case: Case) -> None:
    """The kernel is accepted in both modes after the change that its message asks for."""
    assert case.cure is not None
    cure, kernel = case.cure, case.kernel
    if cure.edits:
        kernel = _edited(case.function, cure.edits)
    args = case.args if cure.args is None else cure.args
    with (
        environment(NEURON_PLATFORM_TARGET_OVERRIDE=cure.target or case.target),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", NkiWarning)
        for eager in (True, False):
            _run(kernel, args, cure.lnc or case.lnc, eager, case.jit)


def _run(kernel: Any, args: tuple[Any, ...], lnc: int | None, eager: bool, jit: Callable[[Any], Any]) -> None:
    made = kernel if hasattr(kernel, "func") else jit(kernel)
    made = made if lnc is None else made[lnc]
    made = nki.simulate(made) if eager else made
    made(*_fresh(args))


def _fresh(args: tuple[Any, ...]) -> tuple[Any, ...]:
    made = copy.deepcopy(args)
    for old, new in zip(args, made, strict=True):
        if isinstance(old, np.ndarray):
            new.flags.writeable = old.flags.writeable
    return made


def _edited(function: Kernel, edits: tuple[tuple[str, str], ...]) -> Kernel:
    source = dedent(inspect.getsource(function))
    source = source[re.search(r"^def ", source, re.MULTILINE).start() :]  # type: ignore[union-attr]
    for old, new in edits:
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {function.__name__}"
        source = source.replace(old, new)
    space = dict(function.__globals__)
    kept_text(source, "<cured>")  # for loop statements, which are read
    exec(compile(source, "<cured>", "exec"), space)
    made: Kernel = space[function.__name__]
    return made


def rendered(error: NkiError) -> str:
    """The text that the author sees, with paths from the root of the repository, without version and addresses."""
    text = str(error).replace(f"{ROOT}/", "")
    text = re.sub(r"\b0x[0-9a-f]+", "0xADDRESS", text)
    return re.sub(r"^  nki \S+;", "  nki VERSION;", text, flags=re.MULTILINE)
