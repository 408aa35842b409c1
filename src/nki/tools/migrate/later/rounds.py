"""Rounds of changes: a kernel that is traced further after one round shows what else there is to change."""

from __future__ import annotations

import difflib
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from nki.options import Options
from nki.target.model import Target
from nki.tools.migrate.calls import Call
from nki.tools.migrate.facts import Facts
from nki.tools.migrate.gathering import gather
from nki.tools.migrate.host import Host, decorated
from nki.tools.migrate.imports import new_imports
from nki.tools.migrate.later.file import Later
from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import transformed
from nki.tools.migrate.problems import Left

_MOST = 8


def in_rounds(
    path: Path, text: str, calls: list[Call], target: Target, options: Options
) -> tuple[str, list[Left], dict[str, str]]:
    """The new text of a file of NKI 0.2 or later, what is left in it, and kernels that cannot be traced, and why."""
    new, rounds = text, 0
    while True:
        before, rounds = new, rounds + 1
        module = cst.parse_module(before)
        names, facts = Names(module), Facts()
        untraced = gather(path, module, facts, calls, target, options)
        later = Later(module, names, facts)
        host = Host({}, names, decorated(module, names))
        changed = transformed(transformed(module, later), host)
        new = new_imports(changed, names, later.needs | host.needs).code
        if new == before or rounds == _MOST:
            return new, _left(text, before, module, later), untraced


def _left(text: str, new: str, module: cst.Module, later: Later) -> list[Left]:
    """What is left, by lines of the original text."""
    if not later.left:
        return []
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    matching = difflib.SequenceMatcher(None, new.splitlines(), text.splitlines(), autojunk=False)
    lines = {}
    for _, first, last, old_first, old_last in matching.get_opcodes():
        lines.update({at: min(old_first + at - first, max(old_last - 1, 0)) for at in range(first, last)})
    return [Left(lines[positions[node].start.line - 1] + 1, reason) for node, reason in later.left]
