"""Which rank a call of a kernel is: asked once, by who begins the call, and handed on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.ranks.protocol import ALONE, Communicator

Ask = Callable[[], Communicator | None]

_HERE: ContextVar[Communicator | None] = ContextVar("communicator", default=None)
"""The rank of this context: nothing between a call and its rank passes it on. `use` puts the one before back."""

_ASKED: list[Ask] = []
"""Who knows which rank the process is: frameworks whose launcher started it."""


def communicator() -> Communicator:
    """The rank that kernels called here are; outside `use` that of the process, or else rank 0 of 1."""
    here = _HERE.get()
    if here is not None:
        return here
    for ask in _ASKED:
        found = ask()
        if found is not None:
            return found
    return ALONE


def install(ask: Ask) -> None:
    """Have somebody asked which rank the process is, in every call of a kernel outside `use`; None if it is none."""
    if ask not in _ASKED:
        _ASKED.append(ask)


@contextmanager
def use(own: Communicator) -> Iterator[None]:
    """Within this block, kernels that this thread calls are the rank `own`.

    Raises:
        LaunchError: it is no rank (``ranks.communicator``).
    """
    _check(own)
    token = _HERE.set(own)
    try:
        yield
    finally:
        _HERE.reset(token)


def _check(own: Communicator) -> None:
    rank, size, meet = (getattr(own, name, None) for name in ("rank", "size", "meet"))
    if type(rank) is not int or type(size) is not int or not 0 <= rank < size or not callable(meet):
        raise LaunchError(
            "ranks.communicator",
            f"nki.ranks.use({shown(own)}): rank is {shown(rank)}, size is {shown(size)}",
            rule="a rank is an object with its number `rank`, from 0 to below `size`, and with a method `meet`",
            fix="write an object as nki.ranks.Communicator documents it",
        )
