"""Import statements: ``neuronxcc.nki`` becomes ``nki``, and what the new text uses is imported."""

from __future__ import annotations

import importlib
from typing import Any

import libcst as cst

from nki.tools.migrate.names import Names, dotted_name
from nki.tools.migrate.nodes import parts, transformed


def new_imports(module: cst.Module, names: Names, needs: set[str]) -> cst.Module:
    """The file with today's imports."""
    changed = transformed(module, _Imports(_used(module)))
    wanted = {"nl": "import nki.language as nl", "nisa": "import nki.isa as nisa"}
    lines = [wanted[each] for each in sorted(needs) if wanted[each] not in changed.code]
    if not lines:
        return changed
    body = list(changed.body)
    at = max((n for n, each in enumerate(body) if _is_nki_import(each)), default=_after_docstring(body) - 1) + 1
    body[at:at] = [cst.parse_statement(line) for line in lines]
    return changed.with_changes(body=body)


def _is_nki_import(statement: Any) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    if isinstance(small, cst.Import):
        return any(dotted_name(alias.name).partition(".")[0] == "nki" for alias in small.names)
    return (
        isinstance(small, cst.ImportFrom) and small.module is not None and dotted_name(small.module).startswith("nki")
    )


def _after_docstring(body: Any) -> int:
    first = body[0] if body else None
    if isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr):
        return 1
    return 0


def _used(module: cst.Module) -> set[str]:
    """Names that are used anywhere but in imports."""
    found: set[str] = set()
    waiting: list[cst.CSTNode] = [module]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Name):
            found.add(node.value)
        elif not isinstance(node, cst.Import | cst.ImportFrom):
            waiting += parts(node)
    return found


def _today(dotted: str) -> str:
    for old in ("neuronxcc.nki", "nki.beta1"):
        if dotted == old or dotted.startswith(f"{old}."):
            return f"nki{dotted[len(old) :]}"
    return dotted


class _Imports(cst.CSTTransformer):
    def __init__(self, used: set[str]) -> None:
        self._used = used

    def on_visit(self, node: cst.CSTNode) -> bool:
        return not isinstance(node, cst.BaseExpression)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        aliases = []
        changed = False
        for alias in original_node.names:
            dotted = dotted_name(alias.name)
            today = _today(dotted)
            if today == dotted:
                aliases.append(alias)
                continue
            changed = True
            bound = (
                alias.asname.name.value if alias.asname is not None and isinstance(alias.asname.name, cst.Name) else ""
            )
            if bound and bound not in self._used and today not in ("nki", "nki.language", "nki.isa"):
                continue
            asname = alias.asname if bound != today else None
            aliases.append(alias.with_changes(name=_dotted(today), asname=asname))
        if not changed:
            return updated_node
        if not aliases:
            return cst.RemoveFromParent()
        aliases[-1] = aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(names=aliases)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> Any:
        if original_node.module is None or original_node.relative or isinstance(original_node.names, cst.ImportStar):
            return updated_node
        dotted = dotted_name(original_node.module)
        if dotted == "neuronxcc":
            plain = [a for a in original_node.names if dotted_name(a.name) == "nki"]
            if len(plain) == len(original_node.names):
                return cst.Import([cst.ImportAlias(cst.Name("nki"), plain[0].asname)])
            return updated_node
        today = _today(dotted)
        if today == dotted:
            return updated_node
        aliases = []
        for alias in original_node.names:
            name = dotted_name(alias.name)
            bound = (
                alias.asname.name.value
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name)
                else name
            )
            if bound in self._used and _exists(today, name):
                aliases.append(alias)
        if not aliases:
            return cst.RemoveFromParent()
        aliases[-1] = aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(module=_dotted(today), names=aliases)


def _exists(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    try:
        return hasattr(found, name)
    except Exception:  # noqa: BLE001 - removed names raise errors of their own
        return False


def _dotted(name: str) -> Any:
    return cst.parse_expression(name)
