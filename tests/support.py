"""Helpers for tests: run a kernel in every mode, and catch what it is refused for."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import nki
from nki.core.errors import NkiError


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for a while."""
    old = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def both(kernel: Any, *args: Any, target: str = "trn2", lnc: int | None = None, **kwargs: Any) -> Any:
    """Run eagerly and compiled, each on copies of the arguments; the results must be equal bit for bit."""
    made = kernel if hasattr(kernel, "func") else nki.jit(kernel)
    made = made if lnc is None else made[lnc]
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        eager = nki.simulate(made)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        compiled = made(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    same_bits(eager, compiled)
    return eager


def same_bits(a: Any, b: Any) -> None:
    """Equal structure, dtypes, shapes and bytes."""
    if isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same_bits(x, y)
    elif a is not None:
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes(), "eager and compiled results differ"


def rejection(
    kernel: Callable[..., Any], *args: Any, target: str = "trn2", lnc: int | None = None, **kwargs: Any
) -> NkiError:
    """The error of a kernel that must be refused, in both modes with the same code."""
    made = kernel if hasattr(kernel, "func") else nki.jit(kernel)
    made = made if lnc is None else made[lnc]
    errors = []
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        for run in (nki.simulate(made), made):
            try:
                run(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            except NkiError as error:
                errors.append(error)
            else:
                raise AssertionError("the kernel was accepted")
    assert errors[0].code == errors[1].code, [e.code for e in errors]
    return errors[0]
