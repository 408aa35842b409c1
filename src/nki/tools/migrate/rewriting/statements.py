"""Statements of a function, one after another; what cannot be rewritten stays, with the reason in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import libcst as cst

from nki.tools.migrate.nodes import all_of, comments_in
from nki.tools.migrate.problems import MARK, NOT_REACHED, Unmigrated
from nki.tools.migrate.rewriting.accumulations import augmented
from nki.tools.migrate.rewriting.assignments import assign
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.expressions import within
from nki.tools.migrate.rewriting.guards import guarded, guards_of, together
from nki.tools.migrate.rewriting.texts import names_in
from nki.tools.migrate.rewriting.transfers import call_statement


def block(c: Context, suite: cst.BaseSuite, names: Iterable[str] = ()) -> cst.BaseSuite:
    """The statements of a block.

    Args:
        names: that have a value of their own in it, as the variable of a loop.
    """
    if not isinstance(suite, cst.IndentedBlock):
        return suite
    around = dict(c.depths)
    c.depths |= dict.fromkeys({*names, *_assigned(suite)}, len(c.scopes))
    c.scopes.append({})
    found: list[Any] = []
    waiting: list[cst.EmptyLine] = []
    for statement in _one_by_one(c, suite.body):
        made = _statement(c, statement)
        if not made:
            waiting += c.orphans
            continue
        if waiting:
            made[0] = made[0].with_changes(leading_lines=(*waiting, *made[0].leading_lines))
            waiting = []
        found += made
    c.scopes.pop()
    c.depths = around
    found = together(c, found) or [cst.parse_statement("pass")]
    return suite.with_changes(body=found, footer=(*waiting, *suite.footer))


def _assigned(suite: cst.BaseSuite) -> set[str]:
    """The names that are assigned in a block, at any depth."""
    kinds = cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.For | cst.NamedExpr
    targets = [node.target for node in all_of(suite, cst.CSTNode) if isinstance(node, kinds)]
    return {name.value for target in targets for name in all_of(target, cst.Name)}


def _one_by_one(c: Context, statements: Iterable[Any]) -> list[Any]:
    """Statements, each on a line of its own; assignments to several names, each of its own where tiles are assigned."""
    found: list[Any] = []
    for each in statements:
        if not isinstance(each, cst.SimpleStatementLine):
            found.append(each)
            continue
        alone = [part for small in each.body for part in _parts(c, small)]
        if len(alone) == 1:
            found.append(each)
            continue
        lines = [cst.SimpleStatementLine([small]) for small in alone]
        lines[0] = lines[0].with_changes(leading_lines=each.leading_lines)
        lines[-1] = lines[-1].with_changes(trailing_whitespace=each.trailing_whitespace)
        found += lines
    return found


def _parts(c: Context, small: cst.BaseSmallStatement) -> list[cst.BaseSmallStatement]:
    """``a, b = x, y`` as two assignments, where one is a tile or an index, and no value reads a name before."""
    target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
    value = small.value if isinstance(small, cst.Assign) else None
    alone = [small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]
    if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
        return alone
    names = [element.value for element in target.elements]
    values = [element.value for element in value.elements]
    kinds = {c.facts.kind(each) for each in values}
    targets = [name for name in names if isinstance(name, cst.Name)]
    written = {name.value for name in targets}
    read = {name.value for each in values for name in all_of(each, cst.Name)}
    if len(names) != len(values) or len(written) != len(names) or written & read or not kinds & _OF_TILES:
        return alone
    return [cst.Assign([cst.AssignTarget(name)], each) for name, each in zip(targets, values, strict=True)]


_OF_TILES = {"index", "grid", "mask", "tensor"}


def _statement(c: Context, statement: Any) -> list[Any]:
    """What becomes of a statement, and what has to stand in front of it."""
    before = c.taken()
    try:
        made = _changed(c, statement)
        emitted = [*c.taken_bounds(), *c.taken()]
    except (Unmigrated, cst.ParserSyntaxError) as problem:
        c.taken()
        reason = str(problem) if isinstance(problem, Unmigrated) else "its new text would be no Python"
        made, emitted = _marked(c, statement, reason), c.taken_bounds()
    c.put_back(before)
    if not emitted:
        return made
    new = [c.parse(text) for text in emitted]
    if made:
        new[0] = new[0].with_changes(leading_lines=made[0].leading_lines)
        made[0] = made[0].with_changes(leading_lines=())
    return [*new, *made]


def _marked(c: Context, statement: Any, reason: str) -> list[Any]:
    """A statement as it was, with the reason, and in front of it what it reads of what is written nowhere else."""
    c.left.append((statement, reason))
    mark = cst.EmptyLine(comment=cst.Comment(f"{MARK}{reason}"))
    defined = [cst.SimpleStatementLine([each]) for each in _definitions(c, statement)]
    if not defined:
        return [statement.with_changes(leading_lines=(*statement.leading_lines, mark))]
    defined[0] = defined[0].with_changes(leading_lines=statement.leading_lines)
    return [*defined, statement.with_changes(leading_lines=(mark,))]


def _definitions(c: Context, statement: Any) -> list[cst.BaseSmallStatement]:
    """The definitions of index expressions and masks that a statement reads, and of those in them."""
    found: list[cst.BaseSmallStatement] = []
    waiting = names_in(statement) & c.definitions.keys()
    while waiting:
        definition = c.definitions[waiting.pop()]
        if definition not in found:
            found.append(definition)
            waiting |= names_in(definition) & c.definitions.keys()
    order = list(c.definitions.values())
    return sorted(found, key=order.index)


def _changed(c: Context, statement: Any) -> list[Any]:
    if isinstance(statement, cst.SimpleStatementLine):
        return _line(c, statement)
    change = _COMPOUND.get(type(statement))
    return [statement if change is None else change(c, statement)]


def _for(c: Context, loop: cst.For) -> cst.For:
    names = [name.value for name in all_of(loop.target, cst.Name)]
    for name in names:
        c.forget(name)
    return loop.with_changes(iter=c.expr(loop.iter), body=block(c, loop.body, names))


def _if(c: Context, statement: cst.If) -> cst.If:
    test, body, other = c.expr(statement.test), block(c, statement.body), statement.orelse
    if isinstance(other, cst.If):
        other = _if(c, other)
    elif isinstance(other, cst.Else):
        other = other.with_changes(body=block(c, other.body))
    return statement.with_changes(test=test, body=body, orelse=other)


def _while(c: Context, loop: cst.While) -> cst.While:
    return loop.with_changes(test=c.expr(loop.test), body=block(c, loop.body))


def _with(c: Context, statement: cst.With) -> cst.With:
    items = [item.with_changes(item=c.expr(item.item)) for item in statement.items]
    return statement.with_changes(items=items, body=block(c, statement.body))


def _function(c: Context, function: cst.FunctionDef) -> cst.FunctionDef:
    names = [param.name.value for param in all_of(function.params, cst.Param)]
    return function.with_changes(body=block(c, function.body, names))


_COMPOUND: dict[type[cst.CSTNode], Callable[[Context, Any], Any]] = {
    cst.For: _for,
    cst.If: _if,
    cst.While: _while,
    cst.With: _with,
    cst.FunctionDef: _function,
}


def _line(c: Context, line: cst.SimpleStatementLine) -> list[Any]:
    """One statement on its line, with its comments."""
    small = line.body[0]
    if isinstance(small, cst.Import | cst.ImportFrom):
        return [line]
    c.masks.conditions.clear()
    texts = _small(c, small)
    conditions = guards_of(c, small)
    if conditions:
        return [guarded(c, line, conditions, [c.one_line(within(c, small))] if texts is None else texts)]
    if texts is None:
        return [line.with_changes(body=[within(c, small)])]
    comments = [cst.EmptyLine(comment=comment) for comment in comments_in(small)] if "#" in c.text(small) else []
    if not texts:
        targets = [name.value for target in all_of(small, cst.AssignTarget) for name in all_of(target, cst.Name)]
        c.definitions |= dict.fromkeys(targets, small)
        trailing = line.trailing_whitespace.comment
        kept = [*line.leading_lines, *comments, *([cst.EmptyLine(comment=trailing)] if trailing else [])]
        c.orphans = kept if any(each.comment for each in kept) else []
        return []
    new = [c.parse(text) for text in texts]
    new[0] = new[0].with_changes(leading_lines=(*line.leading_lines, *comments))
    if isinstance(new[-1], cst.SimpleStatementLine):
        new[-1] = new[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return new


def _small(c: Context, small: cst.BaseSmallStatement) -> list[str] | None:
    """The texts of the statements for it; None where only its expressions change."""
    _reached(c, small)
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        return assign(c, small.targets[0].target, small.value)
    if isinstance(small, cst.AnnAssign) and small.value is not None:
        return _annotated(c, small, assign(c, small.target, small.value))
    if isinstance(small, cst.AugAssign):
        return augmented(c, small)
    if isinstance(small, cst.Return) and small.value is not None and c.is_kernel:
        return _returned(c, small.value)
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        return call_statement(c, small.value)
    return None


def _annotated(c: Context, small: cst.AnnAssign, texts: list[str] | None) -> list[str] | None:
    """The statements with the annotation, where one of them has a place for it."""
    name = f"{c.one_line(small.target)} = "
    if not texts or not texts[-1].startswith(name):
        return texts
    annotation = c.one_line(small.annotation.annotation)
    return [*texts[:-1], f"{name[:-3]}: {annotation} = {texts[-1].removeprefix(name)}"]


def _returned(c: Context, value: cst.BaseExpression) -> list[str] | None:
    """What a kernel returns is in HBM today: tiles are stored first."""
    nodes = [element.value for element in value.elements] if isinstance(value, cst.Tuple) else [value]
    on_chip = [c.facts.kind(each) == "tensor" and c.facts.known(each).buffer in ("sbuf", "psum") for each in nodes]
    if not any(on_chip):
        return None
    texts, names = [], []
    for node, is_tile in zip(nodes, on_chip, strict=True):
        names.append(c.fresh("result") if is_tile else c.code(node))
        if is_tile:
            text = c.code(node)
            kind = f"{text}.shape, dtype={text}.dtype, buffer={c.nl('shared_hbm')}"
            texts += [f"{names[-1]} = {c.nl('ndarray')}({kind})", f"{c.nl('store')}({names[-1]}, {text})"]
    return [*texts, f"return {', '.join(names)}"]


def _reached(c: Context, small: cst.BaseSmallStatement) -> None:
    """Raises Unmigrated for a statement of the language that no example call came to."""
    if any(c.facts.of(each) for each in all_of(small, cst.BaseExpression)):
        return
    calls = any(c.names.canonical(each.func).startswith(("nl.", "nisa.")) for each in all_of(small, cst.Call))
    assigns = isinstance(small, cst.Assign | cst.AugAssign)
    if calls or (assigns and all_of(small, cst.Subscript)):
        raise Unmigrated(NOT_REACHED)
