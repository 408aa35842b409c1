"""The docstring of an instruction as `help` shows it: every argument, those that many instructions share as well."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

from nki.spec.engine import engine as Engine

_SHARED = {
    "reduce_cmd": "what happens to the accumulator registers of the engine, see nisa.reduce_cmd.",
    "reverse_pred": "True exchanges what zero and non-zero elements of the predicate choose.",
    "name": "of this instruction, in messages, profiles and `with_schedule`.",
}
_ENTRY = re.compile(r"(?m)^ {4}(\w+(?:, \w+)*):")


def documented(doc: str | None, parameters: Iterable[str], engines: Sequence[Engine]) -> str:
    """A docstring with an entry for each argument that many instructions have and it does not name.

    Args:
        doc: as the declaration has it.
        parameters: all arguments, in their order.
        engines: that can run the instruction, the default first.
    """
    before, head, rest = inspect.cleandoc(doc or "").partition("Args:\n")
    entries, after = _entries(rest)
    known = {name for names in _ENTRY.findall(entries) for name in names.split(", ")}
    shared = {**_SHARED, "engine": _engine(engines)}
    lines = [f"    {name}: {shared[name]}" for name in parameters if name not in known and name in shared]
    if not lines:
        return before + head + rest
    entries = "\n".join(filter(None, (entries.rstrip(), *lines)))
    return f"{before.rstrip()}\n\nArgs:\n{entries}\n" + (f"\n{after}" if after else "")


def _entries(text: str) -> tuple[str, str]:
    """The entries of a section, and what comes after it."""
    end = re.search(r"(?m)^\S", text)
    return (text[: end.start()], text[end.start() :]) if end else (text, "")


def _engine(engines: Sequence[Engine]) -> str:
    names = [f"nisa.engine.{each.name}" for each in engines]
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"
    return f"that runs it: {listed}; left out, one that can is chosen."
