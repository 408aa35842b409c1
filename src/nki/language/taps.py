"""Taps: a kernel and its reference name intermediate values, so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from nki.core.dtypes import find
from nki.core.errors import ArgumentError, FrontendError
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.tensor import View
from nki.spec.convert import escaped
from nki.spec.sink import Sink, active_sink

Take = Callable[[str, np.ndarray], None]

_HOST: ContextVar[Take | None] = ContextVar("nki_host_taps", default=None)
"""Who takes the values of a reference that runs in this context; the reference calls `tap` without knowing."""


def tap(name: str, value: Any) -> None:
    """Name the values that a tensor has at this point, for `nki compare`.

    In a kernel, `value` is a tensor in any memory. No instruction is issued and nothing is waited for: the program is
    the same with and without the call. Outside of a kernel, `value` is an array of the reference. When nobody
    compares, the call does nothing. One name may be used several times; its n-th use in the kernel belongs to its
    n-th use in the reference.

    Raises:
        ArgumentError: the name is no text (``tap.name``), the value no tensor or array of numbers (``tap.value``).
        FrontendError: the tensor has a dynamic address (``tap.dynamic``), or belongs to another kernel call
            (``tensor.escaped``).
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            "tap.name", f"tap({shown(name)}, ...)", rule="a tap has a name", fix='write tap("scores", tensor)'
        )
    sink = active_sink()
    if sink is not None:
        sink.tap(name, _view(name, value, sink))
        return
    array, take = _array(name, value), _HOST.get()
    if take is not None:
        take(name, array)


@contextmanager
def host_taps(take: Take) -> Iterator[None]:
    """Pass the taps that are made outside of kernels to `take`."""
    token = _HOST.set(take)
    try:
        yield
    finally:
        _HOST.reset(token)


def _view(name: str, value: Any, sink: Sink) -> View:
    if not isinstance(value, NkiTensor):
        raise _no_value(name, value, "in a kernel, a tap takes a tensor", "pass the tensor that holds the values")
    view = value.view_record
    if view.buffer.trace is not sink.trace:
        raise escaped(value, f"tap {name!r}")
    if view.dynamic is not None:
        raise FrontendError(
            "tap.dynamic",
            f"tap {name!r} is a view of {view.buffer.name} with a dynamic address",
            rule="a tap copies values from a fixed place",
            fix="tap the whole tensor, or a tile that the view was copied to",
        )
    return view


def _array(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, NkiTensor):
        array = np.array(value)
        if array.dtype.kind in "biuf" or find(array.dtype) is not None:
            return array
    raise _no_value(name, value, "outside of a kernel, a tap takes an array of numbers", "pass a NumPy array")


def _no_value(name: str, value: Any, rule: str, fix: str) -> ArgumentError:
    return ArgumentError("tap.value", f"tap {name!r} got {shown(value)}", rule=rule, fix=fix)
