"""What a kernel of this library refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nki import errors

_FOLDER = str(Path(__file__).parent)


class KernelLimit(errors.NkiError, ValueError):
    """A call that a kernel of this library does not compute, at the line that made it.

    Args:
        code: ``nkilib.shape``, ``nkilib.layout``, ``nkilib.dtype``, ``nkilib.target``, ``nkilib.argument``,
            ``nkilib.option`` or ``nkilib.not-built``.
        message: what is wrong, with the actual numbers.
        rule: what holds instead, as a sentence.
        fix: one thing to do about it.
        facts: actual values by name, for programs.
    """

    def __init__(self, code: str, message: str, *, rule: str, fix: str, **facts: Any) -> None:
        super().__init__(
            code,
            message,
            rule=rule,
            fix=fix,
            facts=facts,
            source="nki/library/api",
            location=errors.called_from(_FOLDER),
        )


class WithoutEffect(UserWarning):
    """Arguments that change nothing, because others say so.

    Args:
        kernel: that was called.
        names: of the arguments.
        why: they have no effect, as a part of a sentence.
    """

    def __init__(self, kernel: str, names: list[str], why: str) -> None:
        self.names = names
        place = errors.called_from(_FOLDER)
        super().__init__(
            f"{kernel}: {', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect {why} ({place})"
        )
