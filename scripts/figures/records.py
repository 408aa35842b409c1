"""Records of many fields that are made by position."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from scripts.figures.tree import Source, name_of

MANY = 8
"""A record of more fields is made by name."""
MOST = 5
"""So many values are told apart by their position, as pylint's and ruff's default for parameters has it (PLR0917)."""
_FIELDLESS = ("ClassVar", "KW_ONLY", "InitVar")


def positional(sources: Sequence[Source]) -> list[str]:
    """Calls that make a record of over `MANY` fields with more than `MOST` of its values by position, or starred.

    Records are dataclasses and named tuples, whose fields are those of their bases and their own. A call is followed
    through imports; in methods ``cls`` is the class itself.
    """
    known = _Records(sources)
    found = []
    for source in sources:
        for node, record, fields in known.made_in(source):
            starred = any(isinstance(argument, ast.Starred) for argument in node.args)
            if fields > MANY and (starred or len(node.args) > MOST):
                found.append(f"{source.at(node)} {record} of {fields} fields, {len(node.args)} by position")
    return found


class _Records:
    """Classes by module and name, and how many fields each record has."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._classes = {
            f"{source.module}.{node.name}": (source, node) for source in sources for node in source.classes()
        }
        self._imports = {source.module: dict(_imports(source)) for source in sources}

    def made_in(self, source: Source) -> Iterator[tuple[ast.Call, str, int]]:
        """Calls that make a record, its name, and the number of its fields."""
        inside = {id(call): node for node in source.classes() for call in ast.walk(node) if isinstance(call, ast.Call)}
        for node in source.nodes:
            if isinstance(node, ast.Call):
                own = inside.get(id(node)) if isinstance(node.func, ast.Name) and node.func.id == "cls" else None
                name = f"{source.module}.{own.name}" if own else self._resolved(source, node.func)
                fields = self._fields(name)
                if fields:
                    yield node, name.rpartition(".")[2], len(fields)

    def _resolved(self, source: Source, node: ast.AST) -> str:
        """The full name of a class."""
        imports: Mapping[str, str] = self._imports[source.module]
        if isinstance(node, ast.Name):
            return imports.get(node.id, f"{source.module}.{node.id}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return f"{imports.get(node.value.id, node.value.id)}.{node.attr}"
        return ""

    def _fields(self, name: str) -> list[str]:
        """Fields of a record in order; none of what is no record."""
        source, node = self._classes.get(name, (None, None))
        if source is None or node is None:
            return []
        bases = [field for base in node.bases for field in self._fields(self._resolved(source, base))]
        decorated = any(name_of(decorator) == "dataclass" for decorator in node.decorator_list)
        if not (decorated or bases or any(name_of(base) == "NamedTuple" for base in node.bases)):
            return []
        return list(dict.fromkeys([*bases, *_own_fields(node)]))


def _own_fields(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            said = ast.unparse(item.annotation)
            init = isinstance(item.value, ast.Call) and any(
                each.arg == "init" and isinstance(each.value, ast.Constant) and each.value.value is False
                for each in item.value.keywords
            )
            if not init and not any(word in said for word in _FIELDLESS):
                yield item.target.id


def _imports(source: Source) -> Iterator[tuple[str, str]]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
