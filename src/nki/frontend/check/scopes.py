"""Which names a piece of Python source binds, and which scope every name belongs to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Owner = ast.Module | ast.ClassDef | Function


@dataclass(frozen=True, slots=True)
class Binding:
    """One place where a name gets a value.

    Attributes:
        node: the statement, expression or parameter that binds it.
        value: what is bound if that is one expression, the function for ``def``; else None.
    """

    node: ast.AST
    value: ast.AST | None


@dataclass(eq=False, slots=True)
class Scope:
    """A module, class or function.

    Attributes:
        owner: its node.
        parent: the scope around it.
        nodes: the nodes that run in it, in source order; those of nested functions and classes are in theirs.
        bindings: by name.
        inner: nested scopes.
        declared_global, declared_outer: names of ``global`` and ``nonlocal`` statements.
    """

    owner: Owner
    parent: Scope | None = None
    nodes: list[ast.AST] = field(default_factory=list)
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    inner: list[Scope] = field(default_factory=list)
    declared_global: set[str] = field(default_factory=set)
    declared_outer: set[str] = field(default_factory=set)

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        return self if self.parent is None else self.parent.module

    def home(self, name: str) -> Scope | None:
        """The scope that a name belongs to here; None if no source binds it, as with built-in names."""
        if name in self.declared_global:
            return self.module
        if name in self.bindings and name not in self.declared_outer:
            return self
        around = self.parent
        while around is not None and isinstance(around.owner, ast.ClassDef):
            around = around.parent
        return around.home(name) if around is not None else None

    def within(self) -> Iterator[Scope]:
        """This scope and all that are nested in it."""
        yield self
        for scope in self.inner:
            yield from scope.within()

    def is_inside(self, outer: Scope) -> bool:
        """Whether this is `outer`, or nested in it."""
        return self is outer or (self.parent is not None and self.parent.is_inside(outer))

    def parameters(self) -> list[ast.arg]:
        """The parameters of a function, in order, with ``*args`` and ``**kwargs``; empty for modules and classes."""
        if isinstance(self.owner, ast.Module | ast.ClassDef):
            return []
        given = self.owner.args
        stars = [star for star in (given.vararg, given.kwarg) if star is not None]
        return [*given.posonlyargs, *given.args, *given.kwonlyargs, *stars]


def read_scopes(tree: ast.Module) -> Scope:
    """The scopes of a module."""
    module = Scope(tree)
    _ScopeBuilder(module).each(tree.body)
    return module


class _ScopeBuilder(ast.NodeVisitor):
    """Fills one scope, and makes the nested ones."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def each(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit(self, node: ast.AST) -> None:
        self._scope.nodes.append(node)
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, node, node)
        self.each(node.decorator_list)
        self._function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast.NodeVisitor looks for

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, node, None)
        self.each([*node.decorator_list, *node.bases, *node.keywords])
        _ScopeBuilder(self._nest(node)).each(node.body)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bind(node.id, node, None)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._target(target, node, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._target(node.target, node, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._target(node.target, node, node.value)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._target(node.target, node, None)
        self.each([*node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0], node, None)

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self._bind(node.name, node, None)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self._bind(node.name, node, None)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self._scope.declared_global.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._scope.declared_outer.update(node.names)

    def _function(self, node: Function, body: Iterable[ast.AST]) -> None:
        self.each([*node.args.defaults, *node.args.kw_defaults])
        scope = self._nest(node)
        reader = _ScopeBuilder(scope)
        for parameter in scope.parameters():
            reader._bind(parameter.arg, parameter, None)
        reader.each(body)

    def _nest(self, node: Owner) -> Scope:
        scope = Scope(node, self._scope)
        self._scope.inner.append(scope)
        return scope

    def _target(self, target: ast.expr, node: ast.AST, value: ast.AST | None) -> None:
        if isinstance(target, ast.Name):
            self._scope.nodes.append(target)
            self._bind(target.id, node, value)
        else:
            self.visit(target)

    def _bind(self, name: str, node: ast.AST, value: ast.AST | None) -> None:
        self._scope.bindings.setdefault(name, []).append(Binding(node, value))
