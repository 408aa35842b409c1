"""Conditions of masks on loop variables and the like: an ``if`` around what becomes of a statement."""

from __future__ import annotations

from typing import Any

import libcst as cst

from nki.tools.migrate.nodes import all_of, comments_in
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.texts import names_in


def guards_of(c: Context, small: cst.BaseSmallStatement) -> dict[str, None]:
    """The conditions under which a statement has an effect: those of its masks, and of the values that it reads.

    A name that it assigns has a value under these conditions from here on.
    """
    targets = [each.target for each in all_of(small, cst.AssignTarget)]
    assigned = {target.value for target in targets if isinstance(target, cst.Name)}
    value = getattr(small, "value", None)
    read = (names_in(small) - assigned) | (names_in(value) if value is not None else set())
    found = dict(c.masks.conditions)
    for name in sorted(read & c.guards.keys()):
        found |= c.guards[name]
    for name in assigned:
        c.guards.pop(name, None)
        if found:
            c.guards[name] = found
    return found


def guarded(c: Context, line: cst.SimpleStatementLine, conditions: dict[str, None], texts: list[str]) -> cst.If:
    """The statements, and those that stand in front of them, where all conditions hold."""
    several = len(conditions) > 1
    test = " and ".join(f"({each})" if several and " or " in each else each for each in conditions)
    body = [c.parse(text) for text in (*c.taken(), *texts)]
    if isinstance(body[-1], cst.SimpleStatementLine):
        body[-1] = body[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    comments = [cst.EmptyLine(comment=comment) for comment in comments_in(line.body[0])]
    made = cst.If(cst.parse_expression(test), cst.IndentedBlock(body), leading_lines=(*line.leading_lines, *comments))
    c.guarding.add(made)
    return made


def together(c: Context, statements: list[Any]) -> list[Any]:
    """Statements with one ``if`` where several in a row test the same."""
    found: list[Any] = []
    for each in statements:
        last = found[-1] if found else None
        if last not in c.guarding or each not in c.guarding or not last.test.deep_equals(each.test):
            found.append(each)
            continue
        first, *rest = each.body.body
        inner = [*last.body.body, first.with_changes(leading_lines=each.leading_lines), *rest]
        found[-1] = last.with_changes(body=last.body.with_changes(body=inner))
        c.guarding.add(found[-1])
    return found
