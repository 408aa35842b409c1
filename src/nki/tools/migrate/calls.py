"""Example calls of the kernels of a file: those that the file itself makes, given ones, and made-up ones."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import signal
import sys
import types
import unittest
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.served import serve
from nki.beta1.tracing.grid import nc
from nki.kernel import Kernel
from nki.tools.migrate.loading import load

MADE_UP = "made-up arguments"


@dataclass(frozen=True)
class Call:
    """One call of a kernel from outside of kernels.

    Attributes:
        kernel: the name of its function.
        args, kwargs: arrays as they were before the call.
        grid: the axes of ``kernel[...]``.
        how: where the call comes from, for people.
    """

    kernel: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grid: tuple[Any, ...]
    how: str

    @property
    def kind(self) -> str:
        """What is no array among the arguments, as text; arrays are all alike."""
        named = [*enumerate(self.args), *self.kwargs.items()]
        return ", ".join(f"{name}={'' if isinstance(value, np.ndarray) else value!r}" for name, value in named)

    @property
    def size(self) -> int:
        """Elements of all arrays."""
        return sum(value.size for value in (*self.args, *self.kwargs.values()) if isinstance(value, np.ndarray))


class _OnlyNoted(Exception):
    """Ends a test whose call is known."""


class _TimeIsUp(BaseException):
    """Ends what the file does by itself: it takes too long, or nothing more is wanted."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def own_calls(path: Path, seconds: float, wanted: frozenset[str]) -> list[Call]:
    """The calls of each kernel that a file makes when it is run, or when its tests are, each kind once.

    Args:
        wanted: the kernels; what the file does is ended when all of them were called.
    """
    return _each_kind(_noted(path, "its own call", lambda: _run(path), seconds, wanted))


def calls_of(script: Path, path: Path, seconds: float) -> list[Call]:
    """The calls of each kernel of a file that a script, or a file of tests, makes: of each kind the smallest."""
    tests = script.name.startswith("test") and importlib.util.find_spec("pytest") is not None
    run = (lambda: _run_tests(script)) if tests else (lambda: _run(script))
    found = _noted(path, f"a call of {script.name}", run, seconds, alone=tests)
    return _each_kind(sorted(found, key=lambda call: call.size))


_MOST_KINDS = 3
"""Calls of one kernel that differ in what is no array."""


def _each_kind(calls: list[Call]) -> list[Call]:
    """The first call of each kind: with other numbers, or other arguments left out, other lines may be reached."""
    found: dict[str, dict[str, Call]] = defaultdict(dict)
    for call in calls:
        kinds = found[call.kernel]
        if call.kind in kinds or len(kinds) == _MOST_KINDS or any(each.grid != call.grid for each in kinds.values()):
            continue
        kinds[call.kind] = call
    return [call for kinds in found.values() for call in kinds.values()]


def _noted(
    path: Path,
    how: str,
    run: Callable[[], None],
    seconds: float,
    wanted: frozenset[str] = frozenset(),
    *,
    alone: bool = False,
) -> list[Call]:
    """The calls of the kernels of a file that something makes; what it cannot do here is left out.

    Args:
        wanted: kernels whose calls are enough.
        alone: whether the calls are only noted, and raise an error in the place of being made.
    """
    found: list[Call] = []
    original = Kernel.__call__
    depth = 0

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        function = self.func
        if depth == 0 and Path(function.__code__.co_filename).resolve() == path.resolve():
            copies = tuple(map(_copied, args)), {key: _copied(value) for key, value in kwargs.items()}
            found.append(Call(function.__name__, *copies, _grid(self), how))
            if alone:
                raise _OnlyNoted
            if wanted and wanted <= {call.kernel for call in found}:
                raise _TimeIsUp
        depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            depth -= 1

    Kernel.__call__ = noted  # type: ignore[method-assign]
    try:
        with _quiet(), _at_most(seconds), contextlib.suppress(Exception, SystemExit, _TimeIsUp):
            run()
    finally:
        Kernel.__call__ = original  # type: ignore[method-assign]
    return found


def _grid(kernel: Kernel[...]) -> tuple[Any, ...]:
    """The axes that a kernel is launched with; today's have one, for its cores."""
    front, cores = kernel._launch.front_end, kernel._launch.lnc
    if isinstance(front, Beta1FrontEnd):
        return front.grid
    return (nc(cores),) if cores else ()


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        argv, folder = sys.argv, os.getcwd()
        try:
            yield
        finally:
            sys.argv = argv
            os.chdir(folder)


def _run_tests(script: Path) -> None:
    """Run a file of tests of pytest, which end at their calls, and so before their asserts."""
    serve()
    importlib.import_module("pytest").main(["-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=no", str(script)])


def _run(script: Path) -> None:
    """Run a script, and its tests that take no arguments."""
    serve()
    sys.argv = [str(script)]
    module = load(script, script.read_text(), "__main__", strict=True).module
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(value):
                test.run(unittest.TestResult())
        elif name.startswith("test") and isinstance(value, types.FunctionType) and not value.__code__.co_argcount:
            with contextlib.suppress(Exception):
                value()
