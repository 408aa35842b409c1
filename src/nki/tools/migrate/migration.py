"""The new text of a file: what stands around kernels, and each function that was traced."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from nki.options import Options
from nki.target.model import Target
from nki.tools.migrate.calls import Call
from nki.tools.migrate.facts import Facts
from nki.tools.migrate.gathering import gather
from nki.tools.migrate.host import Host, decorated
from nki.tools.migrate.imports import new_imports
from nki.tools.migrate.later.rounds import in_rounds
from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import all_of, transformed
from nki.tools.migrate.problems import MARK, RUN_TIME, Left
from nki.tools.migrate.programs import Programs, parts_of_kernels
from nki.tools.migrate.rewriting.function import rewritten


@dataclass
class Migrated:
    """What became of a file.

    Attributes:
        old, new: its texts.
        left: statements that stay as they were.
        facts_errors: kernels that could not be traced, and why.
    """

    old: str
    new: str
    left: list[Left] = field(default_factory=list)
    untraced: dict[str, str] = field(default_factory=dict)


def migrate(path: Path, text: str, calls: list[Call], target: Target, options: Options) -> Migrated:
    """The text of a file in today's language."""
    module = cst.parse_module(text)
    names = Names(module)
    if not names.is_old:
        new, later_left, untraced = in_rounds(path, text, calls, target, options)
        return Migrated(text, new, later_left, untraced)
    if kept := _of_run_time(module, names):
        lines = _lines(module)
        return Migrated(text, text, [Left(lines.get(node, 0), RUN_TIME) for node in kept])
    facts = Facts()
    untraced = gather(path, module, facts, calls, target, options)
    used = {node.value for node in all_of(module, cst.Name)}
    grids = {call.kernel: call.grid for call in calls if call.grid}
    wrapper = _File(module, names, facts, used, {call.kernel: call.grid for call in calls})
    changed = transformed(module, wrapper)
    stay = {node.name.value for node, _ in wrapper.left if isinstance(node, cst.FunctionDef)}
    host = Host({name: grid for name, grid in grids.items() if name not in stay}, names, decorated(module, names))
    changed = transformed(changed, host)
    lines = _lines(module) if wrapper.left else {}
    left = [Left(lines.get(node, 0), reason) for node, reason in wrapper.left]
    return Migrated(text, new_imports(changed, names, wrapper.needs | host.needs).code, left, untraced)


def _of_run_time(module: cst.Module, names: Names) -> list[cst.CSTNode]:
    """The calls that make a number of run time, or loop over one."""
    made = ("nt.scalar", "nki._private.private_api.do_while", "nki.private_api.do_while")
    return [node for node in all_of(module, cst.Call) if names.canonical(node.func) in made]


def _lines(module: cst.Module) -> dict[cst.CSTNode, int]:
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    return {node: position.start.line for node, position in positions.items()}


_OF_KERNELS = ("nki.jit", "nki.trace", "nki.baremetal", "nki.benchmark", "nki.profile")
"""What makes kernels of functions."""


class _File(cst.CSTTransformer):
    """Rewrites the functions of a file that were traced, one after another."""

    def __init__(self, module: cst.Module, names: Names, facts: Facts, used: set[str], grids: dict[str, Any]) -> None:
        self._grids = grids
        self._parts = parts_of_kernels(module, names, grids)
        self._module = module
        self._names = names
        self._facts = facts
        self._used = used
        self.left: list[tuple[cst.CSTNode, str]] = []
        self.needs: set[str] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if not self._traced(original_node):
            return self._untraced(original_node)
        grid = self._grids.get(original_node.name.value)
        around, told = self._parts.get(original_node.name.value, ((), None))
        passed = {name: names for name, (_, names) in self._parts.items()}
        programs = Programs(self._names, around if grid is None else grid, passed, told if grid is None else None)
        found = rewritten(
            original_node,
            self._module,
            self._names,
            self._facts,
            self._used,
            programs,
            is_kernel=grid is not None,
        )
        self.left += found.left
        self.needs |= found.needs
        return found.function.with_changes(decorators=self._decorators(original_node))

    def _untraced(self, node: cst.FunctionDef) -> cst.FunctionDef:
        """A function that was not executed stays as it is; if it uses the language, it is marked."""
        calls = all_of(node.body, cst.Call)
        if not any(self._names.canonical(each.func).startswith(("nl.", "nisa.", "ncc.")) for each in calls):
            return node
        reason = "it was not executed: give arguments with --arg"
        self.left.append((node, reason))
        mark = cst.EmptyLine(comment=cst.Comment(f"{MARK}{reason}"))
        return node.with_changes(leading_lines=(*node.leading_lines, mark), decorators=self._decorators(node))

    def _traced(self, node: cst.FunctionDef) -> bool:
        return any(self._facts.of(each) for each in all_of(node.body, cst.BaseExpression))

    def _decorators(self, node: cst.FunctionDef) -> list[cst.Decorator]:
        found = []
        for decorator in node.decorators:
            inner = decorator.decorator
            function = inner.func if isinstance(inner, cst.Call) else inner
            name = self._names.canonical(function)
            if name.startswith("ncc."):
                continue
            if name in _OF_KERNELS and node.name.value in self._parts:
                continue  # a function that kernels call is none
            if name in _OF_KERNELS:
                plain = (
                    cst.Attribute(function.value, cst.Name("jit")) if isinstance(function, cst.Attribute) else function
                )
                decorator = decorator.with_changes(decorator=plain)
            found.append(decorator)
        return found
