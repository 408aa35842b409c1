"""``and`` between masks: ``i < n and j < m`` means both, as ``(i < n) & (j < m)`` does, and so does ``0 <= i < n``.

Python asks the first condition for its truth, and takes the second one if that is true. A mask that is true in a part
of the tile alone says so, and joins the comparison that follows in the same expression. The bytecode tells an ``and``
whose value is used from an ``if``, which a mask cannot decide.
"""

from __future__ import annotations

import dis
import sys
from contextvars import ContextVar
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from nki.beta1.errors import condition_on_arange


class _Waiting(NamedTuple):
    """The comparisons of a mask that wait for the second operand of an ``and``, in the bytecode from start to end."""

    comparisons: tuple[Any, ...]
    frame: FrameType
    start: int
    end: int


_WAITING: ContextVar[_Waiting | None] = ContextVar("nki_beta1_conjunction", default=None)
"""The mask that waits in a context: Python asks for its truth without a way to hand it on."""


def forget() -> None:
    """Begin a kernel: no mask of another one waits."""
    _WAITING.set(None)


def waits(comparisons: tuple[Any, ...], depth: int) -> bool:
    """Whether a mask whose truth is asked for is the first operand of an ``and``; it waits for the second one then.

    Args:
        depth: of the frame that asks, from the caller of this function.
    """
    frame = sys._getframe(depth + 1)
    end = _end_of_conjunction(frame.f_code, frame.f_lasti)
    if end is None:
        return False
    check_joined()
    _WAITING.set(_Waiting(comparisons, frame, frame.f_lasti, end))
    return True


def joined(comparisons: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
    """The comparisons of a mask with those that wait for it.

    Args:
        depth: of the frame that compares, from the caller of this function.
    """
    waiting = _WAITING.get()
    if waiting is None:
        return comparisons
    frame = sys._getframe(depth + 1)
    if frame is not waiting.frame or not waiting.start < frame.f_lasti < waiting.end:
        return comparisons
    _WAITING.set(None)
    return waiting.comparisons + comparisons


def check_joined() -> None:
    """Raise if a mask waits for a second operand that was no comparison, so that it would be lost."""
    if _WAITING.get() is not None:
        _WAITING.set(None)
        raise condition_on_arange()


@lru_cache(maxsize=1 << 10)  # the bytecode of a function does not change
def _end_of_conjunction(code: CodeType, offset: int) -> int | None:
    """Where the second operand of the ``and`` ends that asks at an offset; None if something else asks."""
    found = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]
    at = next((n for n, each in enumerate(found) if each.offset == offset), None)
    if at is None:
        return None
    if found[at].opname == "JUMP_IF_FALSE_OR_POP":  # up to Python 3.11
        return int(found[at].argval)
    jump = at + (found[at].opname == "TO_BOOL")
    kept = at > 0 and found[at - 1].opname == "COPY" and found[jump].opname.endswith("JUMP_IF_FALSE")
    return int(found[jump].argval) if kept and found[jump + 1].opname in ("POP_TOP", "NOT_TAKEN") else None
