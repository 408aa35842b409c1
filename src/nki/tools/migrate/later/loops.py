"""Loops that the device runs: ``nl.dynamic_range`` and ``while register:`` become functions of their bodies."""

from __future__ import annotations

from typing import Any

import libcst as cst

from nki.tools.migrate.nodes import all_of, parts
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context


def for_loop(c: Context, old: cst.For, new: cst.For, after: frozenset[str]) -> list[Any]:
    """``nl.fori_loop`` over a function of the body.

    Args:
        old, new: the loop as it stands, and with today's statements in it.
        after: names that are read behind the loop.
    """
    assert isinstance(new.iter, cst.Call) and isinstance(new.body, cst.IndentedBlock), "a loop over a range"
    if not isinstance(new.target, cst.Name):
        raise Unmigrated("the variable of a loop of the device is one name")
    _checked(old, after, {new.target.value})
    bounds = [c.one_line(arg.value) for arg in new.iter.args]
    bounds = ["0", *bounds] if len(bounds) == 1 else bounds
    body = c.fresh("body")
    return [
        _function(new, body, new.target.value, new.body),
        cst.parse_statement(f"{c.nl('fori_loop')}({bounds[0]}, {bounds[1]}, {', '.join([body, *bounds[2:]])})"),
    ]


def while_loop(c: Context, old: cst.While, new: cst.While, after: frozenset[str]) -> list[Any]:
    """``nl.while_loop`` over a function of the body, which returns the register."""
    if not isinstance(new.test, cst.Name) or not isinstance(new.body, cst.IndentedBlock):
        raise Unmigrated("the condition of a loop of the device is the name of a register")
    register = new.test.value
    if register in after:
        raise Unmigrated(f"{register} is read behind the loop, and nl.while_loop leaves it as it was")
    _checked(old, after, {register})
    body = c.fresh("body")
    block = new.body.with_changes(body=[*new.body.body, cst.parse_statement(f"return {register}")])
    return [
        _function(new, body, register, block),
        cst.parse_statement(f"{c.nl('while_loop')}({register}, {body})"),
    ]


def _function(loop: Any, name: str, parameter: str, body: cst.BaseSuite) -> cst.FunctionDef:
    made = cst.FunctionDef(cst.Name(name), cst.Parameters([cst.Param(cst.Name(parameter))]), body)
    return made.with_changes(leading_lines=loop.leading_lines)


def _checked(loop: Any, after: frozenset[str], given: set[str]) -> None:
    """Raises Unmigrated where the body of a function would mean something else than that of the loop."""
    if loop.orelse is not None:
        raise Unmigrated("a loop of the device has no else")
    made: set[str] = set(given)
    for statement in loop.body.body:
        stored = _stored(statement)
        lost = (stored - made) & _read(statement) if not _is_plain(statement) else set()
        if lost or stored & after:
            name = min(lost or stored & after)
            raise Unmigrated(f"{name} is assigned in the loop and read outside of that trip")
        made |= stored


def _is_plain(statement: Any) -> bool:
    """Whether a statement reads before it assigns, and assigns to names that it does not read."""
    stored = _stored(statement)
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
        return not stored & _read(statement.body[0].value)
    return not stored or isinstance(statement, cst.FunctionDef | cst.For | cst.With)


def _stored(node: cst.CSTNode) -> set[str]:
    """Names that a statement assigns to."""
    if isinstance(node, cst.FunctionDef):
        return {node.name.value}
    own = _targets(node.target) if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.For) else set()
    return own.union(*(_stored(each) for each in parts(node)))


def _targets(node: cst.CSTNode) -> set[str]:
    if isinstance(node, cst.Tuple | cst.List):
        return {name for element in node.elements for name in _targets(element.value)}
    return {node.value} if isinstance(node, cst.Name) else set()


def _read(node: cst.CSTNode) -> set[str]:
    return {name.value for name in all_of(node, cst.Name)}
