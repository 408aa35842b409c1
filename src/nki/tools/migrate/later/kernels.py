"""What a kernel as a whole looks like today: its parameters, and the memory of what it returns."""

from __future__ import annotations

import libcst as cst

from nki.tools.migrate.nodes import all_of


def without_separator(params: cst.Parameters) -> cst.Parameters:
    """Parameters without the ``*`` that kernels cannot have since NKI 0.3, where those behind it have defaults."""
    plain, behind = list(params.params), list(params.kwonly_params)
    is_separator = isinstance(params.star_arg, cst.ParamStar)
    if not is_separator or (any(each.default for each in plain) and not all(each.default for each in behind)):
        return params
    optional = [each for each in behind if each.default]
    needed = [each for each in behind if not each.default]
    return params.with_changes(
        params=[*plain, *needed, *optional], star_arg=cst.MaybeSentinel.DEFAULT, kwonly_params=[]
    )


def returned(function: cst.FunctionDef) -> frozenset[str]:
    """The names that a function returns."""
    values = [each.value for each in all_of(function.body, cst.Return) if each.value is not None]
    several = [value.elements if isinstance(value, cst.Tuple) else [cst.Element(value)] for value in values]
    nodes = [element.value for elements in several for element in elements]
    return frozenset(node.value for node in nodes if isinstance(node, cst.Name))
