"""Liveness of Python names: which ones a statement may read before it binds them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


class Reads(ast.NodeVisitor):
    """Collects, in the order of execution, the names that are read before they are bound.

    Branches bind what both of them bind. Python loops and ``try`` bodies count as executed: what they bind is bound.

    Attributes:
        found: the names that are read first.
        bound: the names that are bound by now.
    """

    def __init__(self, bound: Iterable[str] = ()) -> None:
        self.found: set[str] = set()
        self.bound: set[str] = set(bound)

    def body(self, statements: Sequence[ast.stmt]) -> Reads:
        """Execute statements."""
        for statement in statements:
            self.visit(statement)
        return self

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found |= {node.id} - self.bound
        else:
            self.bound.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._each([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._each([node.value, node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.found |= {node.target.id} - self.bound
        self._each([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._each([node.value, node.target])

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches([node.body, node.orelse])

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            self._each([case.pattern, *([case.guard] if case.guard else [])])
        self._branches([case.body for case in node.cases])

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.generic_visit(node)
        if node.name is not None:
            self.bound.add(node.name)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._each([node.iter, node.target])
        self.body(node.body).body(node.orelse)

    visit_AsyncFor = visit_For  # noqa: N815 - the name that ast.NodeVisitor looks for

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._each([node.iter, node.target, *node.ifs])

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        self._inner([*node.generators, node.elt])

    visit_SetComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._inner([*node.generators, node.key, node.value])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._each(node.decorator_list)
        self._function(node, node.body)
        self.bound.add(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._each([*node.decorator_list, *node.bases, *node.keywords])
        self._inner(node.body)
        self.bound.add(node.name)

    def _function(self, node: Function, body: Sequence[ast.AST]) -> None:
        """What it captures counts as read where it is defined."""
        self._each([value for value in (*node.args.defaults, *node.args.kw_defaults) if value is not None])
        inner = Reads(self.bound | {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)})
        inner._each(body)
        self.found |= inner.found

    def _inner(self, nodes: Iterable[ast.AST]) -> None:
        inner = Reads(self.bound)
        inner._each(nodes)
        self.found |= inner.found

    def _branches(self, bodies: Sequence[Sequence[ast.stmt]]) -> None:
        ends = []
        for body in bodies:
            branch = Reads(self.bound).body(body)
            self.found |= branch.found
            if not (body and isinstance(body[-1], _LEAVES)):
                ends.append(branch.bound)
        if ends:
            self.bound = set.intersection(*ends)

    def _each(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


def read_in_next_trip(loop: ast.For | ast.While) -> set[str]:
    """Names that a trip reads before it binds them: they hold what the previous trip left.

    The condition of a ``while`` is computed before the loop, and then at the end of every trip.
    """
    reads = Reads()
    if isinstance(loop, ast.For):
        reads.visit(loop.target)
    reads.body(loop.body)
    if isinstance(loop, ast.While):
        reads.visit(loop.test)
    return reads.found


def read_after(loop: ast.stmt, ancestors: Sequence[ast.AST]) -> set[str]:
    """Names that may be read after the loop before they are bound again; `ancestors` from the function inwards."""
    assert isinstance(loop, ast.For | ast.While)
    reads = Reads().body(loop.orelse)
    inner: ast.AST = loop
    for outer in reversed(ancestors):
        for statements in _blocks_after(outer, inner):
            reads.body(statements)
        if isinstance(outer, _LOOPS) and inner in outer.body:
            again = Reads(reads.bound)
            again.visit(outer.target if isinstance(outer, ast.For | ast.AsyncFor) else outer.test)
            reads.found |= again.body(outer.body).found
            reads.body(outer.orelse)
        if isinstance(outer, _SCOPES):
            return reads.found | _captured(outer, loop)
        inner = outer
    return reads.found


def _blocks_after(outer: ast.AST, inner: ast.AST) -> list[Sequence[ast.stmt]]:
    """What follows `inner` in the block of `outer` that holds it, and what is run after that block."""
    blocks: list[Sequence[ast.stmt]] = []
    for field in ("body", "orelse", "finalbody"):
        block = getattr(outer, field, [])
        if isinstance(block, list) and inner in block:
            blocks.append(block[block.index(inner) + 1 :])
            if isinstance(outer, ast.Try) and field != "finalbody":
                blocks += [outer.orelse if field == "body" else [], outer.finalbody]
    return blocks


def _captured(function: ast.AST, loop: ast.AST) -> set[str]:
    """Names that escape: declared global or nonlocal, or read by a nested function outside of the loop."""
    found: set[str] = set()
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if node is loop:
            found |= {name for n in ast.walk(node) if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            reads = Reads()
            reads.visit(node)
            found |= reads.found
        pending.extend(ast.iter_child_nodes(node))
    return found


def bindings(loop: ast.For | ast.While) -> dict[str, ast.AST]:
    """Names that a trip binds in the function's own scope, with the first place of each; not the loop's target."""
    found: dict[str, ast.AST] = {}
    pending: list[ast.AST] = list(reversed(loop.body))
    if isinstance(loop, ast.While):
        pending.insert(0, loop.test)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.name, node)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, node)
        if not isinstance(node, (*_SCOPES, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
    if isinstance(loop, ast.For):
        targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        found = {name: node for name, node in found.items() if name not in targets}
    return found
