"""Where the environment is read, and where a target is chosen if nobody named one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence

from scripts.figures.tree import Source, name_of


def environment(sources: Sequence[Source]) -> dict[str, int]:
    """Uses of `from_environment` by file: calls, and the function handed on, as by ``default_factory``."""
    return _counted(sources, lambda node: _is_read(node) and name_of(node) == "from_environment")


def default_targets(sources: Sequence[Source]) -> dict[str, int]:
    """Calls of `load_target` by file whose argument says what to take by default."""
    return _counted(sources, _with_default)


def _with_default(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and name_of(node) == "load_target"
        and any(name_of(part) == "DEFAULT_TARGET" for part in ast.walk(node))
    )


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)


def _counted(sources: Sequence[Source], wanted: Callable[[ast.AST], bool]) -> dict[str, int]:
    found = Counter(source.path for source in sources for node in source.nodes if wanted(node))
    return dict(sorted(found.items()))
