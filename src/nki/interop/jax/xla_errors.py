"""Errors of kernels that XLA ran: kept until the caller gets XLA's error, which can only carry text."""

from __future__ import annotations

import copy
import re
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from nki.core.errors import NkiError

_KEPT = 64
_NUMBER = re.compile(r"\[nki failure (\d+)\]")


class Failures:
    """The last errors, by a number that stands in the text that XLA carries."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: deque[tuple[int, NkiError]] = deque(maxlen=_KEPT)

    def text(self, error: BaseException) -> str:
        """What XLA is told: our errors as they are printed, with code and caret; of others the traceback."""
        if not isinstance(error, NkiError):
            return "".join(traceback.format_exception(error))
        number = next(self._numbers)
        self._kept.append((number, copy.copy(error)))  # the copy has no traceback, which would keep the kernel
        return f"{error}\n  [nki failure {number}]"

    def behind(self, error: BaseException) -> NkiError | None:
        """The kernel's error behind one of XLA; None if it has another cause or is long past."""
        found = _NUMBER.search(str(error))
        number = int(found[1]) if found else 0
        return next((copy.copy(kept) for known, kept in tuple(self._kept) if known == number), None)


FAILURES = Failures()
"""XLA carries text from any of its threads to any caller of the process; the last `_KEPT` errors are found again."""


@contextmanager
def kernel_errors() -> Iterator[None]:
    """Raise the kernel's own error in place of the one that XLA makes of it.

    That one is a ``ValueError`` if the program ran within the call, else a ``JaxRuntimeError`` from whatever waits for
    the result (``block_until_ready``, ``np.asarray``), which therefore belongs inside.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        found = FAILURES.behind(error)
        if found is None:
            raise
        raise found from error
