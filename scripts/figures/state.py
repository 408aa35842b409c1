"""What a process keeps at the top of a module and changes, and whether somebody says why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scripts.figures.tree import Function, Source, name_of

CACHES = ("cache", "lru_cache")
ALWAYS = (
    *("deque", "defaultdict", "OrderedDict", "Counter", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"),
    *("bytearray", "ContextVar", "local", "count", "cycle"),
)
"""What is made to be changed."""
_PLAIN = ("dict", "list", "set")
_DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
_CHANGES = (
    *("append", "appendleft", "add", "update", "pop", "popitem", "popleft", "clear", "setdefault", "extend", "insert"),
    *("remove", "discard", "sort"),
)
_KEPT = re.compile(r"\b(kept|keeps?|remember(s|ed)?|cached?|once|same object|memo\w*|per process)\b", re.IGNORECASE)
"""What a docstring of a function says that tells of its answers being kept."""


class State(NamedTuple):
    """Something that changes.

    Attributes:
        place: file and line.
        kind: "changed" for a dictionary, list or set that some function changes, "made to be changed" for other
            containers, counters and context variables, "rebound" for a name in a ``global`` statement, "cache" for a
            function whose answers are kept.
        why: whether it is justified: by a comment on its line or above it, by a string below it, or, of a function, by
            a docstring that says that answers are kept.
    """

    place: str
    name: str
    kind: str
    why: bool


def state(sources: Sequence[Source]) -> list[State]:
    """All of it; tables that nothing changes are constants and not among it."""
    changed = {name for source in sources for name in _changed(source)}
    return [found for source in sources for found in (*_values(source, changed), *_caches(source))]


def _values(source: Source, changed: set[str]) -> Iterator[State]:
    rebound = {name for node in source.nodes if isinstance(node, ast.Global) for name in node.names}
    for number, node in enumerate(source.tree.body):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for name in _targets(node):
            kind = _kind(node.value, f"{source.module}.{name}" in changed, name in rebound)
            if kind:
                below = source.tree.body[number + 1 : number + 2]
                yield State(source.at(node), name, kind, _commented(source, node) or any(map(_is_text, below)))


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _kind(value: ast.expr | None, changed: bool, rebound: bool) -> str:
    if rebound:
        return "rebound"
    if isinstance(value, ast.Call) and name_of(value) in ALWAYS:
        return "made to be changed"
    plain = isinstance(value, _DISPLAYS) or (isinstance(value, ast.Call) and name_of(value) in _PLAIN)
    return "changed" if plain and changed else ""


def _caches(source: Source) -> Iterator[State]:
    """Functions outside of classes and inside, whose answers are kept."""
    for node in source.functions():
        marks = [mark for mark in node.decorator_list if _cache(mark)]
        if marks:
            why = any(_commented(source, each) for each in (*marks, node)) or _says(node)
            yield State(source.at(node), node.name, "cache", why)


def _cache(mark: ast.expr) -> bool:
    return name_of(mark) in CACHES


def _says(node: Function) -> bool:
    return bool(_KEPT.search(ast.get_docstring(node) or ""))


def _commented(source: Source, node: ast.stmt | ast.expr) -> bool:
    """A comment in the lines of a statement, or on the line above."""
    first = node.lineno - 1
    last = node.lineno if isinstance(node, Function) else node.end_lineno or node.lineno
    return any(line in source.comments for line in range(first, last + 1))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _changed(source: Source) -> Iterator[str]:
    """Full names of what functions of a module change: its own names, and those that it imports."""
    imported = dict(_imported(source))
    for node in source.functions():
        for part in ast.walk(node):
            for target in _changes(part):
                if isinstance(target, ast.Name):
                    yield imported.get(target.id, f"{source.module}.{target.id}")
                elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    yield f"{imported.get(target.value.id, target.value.id)}.{target.attr}"


def _changes(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement or call changes in place."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
        yield node.func.value


def _imported(source: Source) -> Iterator[tuple[str, str]]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
