"""Example calls of the kernels of a file: those that the file itself makes, given ones, and made-up ones."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import types
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.served import serve
from nki.beta1.tracing.grid import nc
from nki.kernel import Kernel

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


class _TimeIsUp(BaseException):
    """Ends what the file does by itself."""


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


def own_calls(path: Path, seconds: float) -> list[Call]:
    """The calls that a file makes when it is run, or when its tests are; what it cannot do here is left out."""
    found: dict[str, Call] = {}
    original = Kernel.__call__
    depth = 0

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        function = self.func
        own = Path(function.__code__.co_filename).resolve() == path.resolve()
        if own and depth == 0 and function.__name__ not in found:
            found[function.__name__] = Call(
                function.__name__,
                tuple(map(_copied, args)),
                {k: _copied(v) for k, v in kwargs.items()},
                _grid(self),
                "its own call",
            )
        depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            depth -= 1

    Kernel.__call__ = noted  # type: ignore[method-assign]
    try:
        with _quiet(), _at_most(seconds), contextlib.suppress(Exception, SystemExit, _TimeIsUp):
            _run(path)
    finally:
        Kernel.__call__ = original  # type: ignore[method-assign]
    return list(found.values())


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


def _run(path: Path) -> None:
    serve()
    sys.argv = [str(path)]
    module = load(path, path.read_text(), "__main__")
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(value):
                test.run(unittest.TestResult())
        elif name.startswith("test") and isinstance(value, types.FunctionType) and not value.__code__.co_argcount:
            with contextlib.suppress(Exception):
                value()


def load(path: Path, text: str, name: str, **more: Any) -> types.ModuleType:
    """Execute a text as the file at a path."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    vars(module).update(more)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    finally:
        if before is not None:
            sys.modules[name] = before
    return module
