"""The body of a function, from beginning to end."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from nki.tools.migrate.facts import Facts
from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import all_of, parts
from nki.tools.migrate.problems import MARK, Unmigrated
from nki.tools.migrate.programs import Programs
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.expressions import expression
from nki.tools.migrate.rewriting.statements import block


@dataclass
class Rewritten:
    """What became of a function.

    Attributes:
        left: statements that stay, and why.
        needs: packages of today's language that it uses, ``nl`` and ``nisa``.
    """

    function: cst.FunctionDef
    left: list[tuple[cst.CSTNode, str]]
    needs: set[str]


def rewritten(
    function: cst.FunctionDef,
    module: cst.Module,
    names: Names,
    facts: Facts,
    used: set[str],
    programs: Programs,
    *,
    is_kernel: bool,
) -> Rewritten:
    """Rewrite a function that was traced.

    Args:
        used: names that the file uses.
        programs: those that it runs in.
        is_kernel: whether it was called from outside of kernels.
    """
    added, masks = _accumulated(function, names), _only_masks(function)
    while True:
        context = Context(module, names, facts, programs, set(used), added, masks, expression, is_kernel=is_kernel)
        body = block(context, function.body)
        if not context.cut_sums:
            break
        added -= context.cut_sums  # what no product writes has to be zero
    try:
        changed = programs.looped(function.with_changes(body=body), module)
    except Unmigrated as problem:
        mark = cst.EmptyLine(comment=cst.Comment(f"{MARK}{problem}"))
        kept = function.with_changes(leading_lines=(*function.leading_lines, mark))
        return Rewritten(kept, [(function, str(problem))], context.needs)
    return Rewritten(changed, context.left, context.needs)


def _accumulated(function: cst.FunctionDef, names: Names) -> frozenset[str]:
    """Names of tiles that nothing but products is added to, in each trip: a sum of none of them would be no zeros."""
    added: set[str] = set()
    others: set[str] = set()
    branches: dict[str, int] = {}

    def look(node: cst.CSTNode, depth: int) -> None:
        depth += isinstance(node, cst.If)
        match node:
            case cst.AugAssign():
                name = _root(node.target)
                always = depth == branches.get(name, 0) and _is_product(node.value, names)
                (added if always else others).add(name)
            case cst.AssignTarget(target=cst.Name(value=name)):
                branches[name] = depth
            case cst.AssignTarget(target=cst.Subscript() as target):
                others.add(_root(target))
        for each in parts(node):
            look(each, depth)

    look(function, 0)
    return frozenset(added - others)


def _only_masks(function: cst.FunctionDef) -> frozenset[str]:
    """Names that are assigned, and read as masks of calls alone."""
    masks = [arg.value for arg in all_of(function, cst.Arg) if arg.keyword is not None and arg.keyword.value == "mask"]
    targets = [each.target for each in all_of(function, cst.AssignTarget) if isinstance(each.target, cst.Name)]
    keywords = [arg.keyword for arg in all_of(function, cst.Arg)]
    known = {id(node) for node in [*masks, *targets, *keywords]}
    others = {name.value for name in all_of(function, cst.Name) if id(name) not in known}
    return frozenset({name.value for name in targets} - others)


def _is_product(node: cst.BaseExpression, names: Names) -> bool:
    """Whether a value is one instruction of the Tensor engine, which adds by itself, whatever a mask says."""
    function = names.canonical(node.func) if isinstance(node, cst.Call) else ""
    if not isinstance(node, cst.Call) or function not in ("nisa.nc_matmul", "nl.matmul"):
        return False
    if any(arg.keyword is not None and arg.keyword.value == "mask" for arg in node.args):
        return False
    transposed = [arg for arg in node.args if arg.keyword is not None and arg.keyword.value == "transpose_x"]
    return function == "nisa.nc_matmul" or any(
        isinstance(arg.value, cst.Name) and arg.value.value == "True" for arg in [*transposed, *node.args[2:3]]
    )


def _root(node: cst.CSTNode) -> str:
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""
