"""What tracing cannot capture, and signatures that cannot be called as they read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nki.frontend.check.inspection import MIGRATION, CheckedFunction, Found, not_possible, text
from nki.frontend.check.scopes import Scope

_COMPILED = "nki/get-started/nki-language-guide.rst, Compilation Model"


def generators(body: CheckedFunction) -> Iterator[Found]:
    """A kernel that yields or awaits, and so does not run when it is called."""
    if not body.kernel:
        return
    if isinstance(body.scope.owner, ast.AsyncFunctionDef):
        yield not_possible(
            "python.async",
            body.scope.owner,
            "the kernel is a coroutine",
            rule="the body of a kernel runs once, from its first line to its last, when the kernel is called",
            source=_COMPILED,
            fix="write def instead of async def",
        )
    for node in body.scope.nodes:
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield not_possible(
                "python.generator",
                node,
                "the kernel is a generator, because it contains yield",
                rule="the body of a kernel runs once, from its first line to its last, when the kernel is called",
                source=_COMPILED,
                fix="collect the tensors and return them as a tuple",
            )
            return


def loop_variables(body: CheckedFunction) -> Iterator[Found]:
    """Assignment to the variable of a device loop."""
    for node, scope in body.nodes():
        if body.kinds.is_device_loop(node, scope):
            assert isinstance(node, ast.For), "a loop"
            targets = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
            stored = {id(name) for statement in node.body for name in ast.walk(statement)}
            yield from _rebound(scope, targets, stored)
    for inner in body.scope.within():
        if inner.parent is not None and inner.parameters() and body.kinds.is_loop_body(inner):
            yield from _rebound(inner, {inner.parameters()[0].arg}, None)


def _rebound(scope: Scope, names: set[str], among: set[int] | None) -> Iterator[Found]:
    """Assignments to `names`; `among` restricts them to nodes of the loop's body."""
    for statement in scope.nodes:
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for name in (node for target in targets for node in ast.walk(target)):
            stored = isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in names
            if stored and (among is None or id(name) in among):
                yield _loop_variable(name)


def _loop_variable(name: ast.AST) -> Found:
    return not_possible(
        "python.loop-variable",
        name,
        f"{text(name)}, the variable of a device loop, is assigned to",
        rule="the variable of a device loop is read-only: the loop counts by itself",
        source=f"{MIGRATION}, Rules for migrated loops",
        fix="give the value another name",
    )


def defaults(body: CheckedFunction) -> list[tuple[ast.arg, ast.expr]]:
    """Parameters of a kernel that have a default."""
    owner = body.scope.owner
    if not body.kernel or isinstance(owner, ast.Module | ast.ClassDef):
        return []
    given = [*owner.args.posonlyargs, *owner.args.args]
    pairs = list(zip(given[len(given) - len(owner.args.defaults) :], owner.args.defaults, strict=True))
    words = zip(owner.args.kwonlyargs, owner.args.kw_defaults, strict=True)
    return [*pairs, *((parameter, default) for parameter, default in words if default is not None)]
