"""Which rank a call of a kernel is: asked once, by who begins the call, and handed on from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nki.ranks.protocol import ALONE, Communicator

_HERE: ContextVar[Communicator] = ContextVar("communicator", default=ALONE)
"""The rank of this context: nothing between a call and its rank passes it on. `use` puts the one before back."""


def communicator() -> Communicator:
    """The rank that kernels called here are; rank 0 of 1 outside `use`."""
    return _HERE.get()


@contextmanager
def use(own: Communicator) -> Iterator[None]:
    """Within this block, kernels that this thread calls are the rank `own`."""
    token = _HERE.set(own)
    try:
        yield
    finally:
        _HERE.reset(token)
