"""Names that stand for several things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

from scripts.figures.tree import Source


def shared_classes(sources: Sequence[Source], least: int) -> dict[str, list[str]]:
    """Names of classes that at least so many classes have, with their places; the most shared ones first."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in source.classes():
            found[node.name].append(source.at(node))
    shared = ((name, places) for name, places in found.items() if len(places) >= least)
    return dict(sorted(shared, key=lambda item: (-len(item[1]), item[0])))


def collisions(sources: Sequence[Source]) -> list[str]:
    """Names that a package binds to something else than its module of that name.

    After ``import nki.x`` such a name is the module for one who asks first, and something else for others.
    """
    modules = {source.module for source in sources}
    found = []
    for source in sources:
        if source.path.endswith("/__init__.py"):
            for name, origin in sorted(_bound(source)):
                if f"{source.module}.{name}" in modules and origin != f"{source.module}.{name}":
                    found.append(f"{source.module}.{name} is a module, and {origin or 'defined'} in {source.path}")
    return found


def _bound(source: Source) -> Iterator[tuple[str, str]]:
    """Names that a module binds at its top, and where they come from."""
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, ""
        elif isinstance(node, ast.Assign):
            yield from ((target.id, "") for target in node.targets if isinstance(target, ast.Name))
