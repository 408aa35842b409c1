"""Which equations of a function of JAX have no way to the device, found without stopping at the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.errors import NkiError
from nki.core.source import Frame, is_own
from nki.graph.errors import GraphError
from nki.graph.importers.jax import lower
from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import run_passes
from nki.interop.jax.equations import Equation, Equations, shape_of
from nki.interop.jax.program import references
from nki.target.model import Target

CANNOT_LOWER = (NotImplementedError, ValueError)
"""What JAX raises where a primitive has no rule for the device."""


def refusals(function: Equations, target: Target) -> dict[Equation, NkiError]:
    """Why equations cannot be compiled, in their order; each is looked at by itself, up to its kernel."""
    found: dict[Equation, NkiError] = {}
    fine: set[Any] = set()
    for equation in function.equations:
        if equation.kind is not None and equation.kind in fine:
            continue
        error = _refused(function, equation, target)
        if error is None:
            fine.add(equation.kind)
        else:
            found[equation] = error
    return found


def at_line(equations: Sequence[Equation], error: NkiError) -> dict[Equation, NkiError]:
    """The equations at the place that an error names: those that are refused when their kernels are made.

    If none is exactly there, those that begin in its line.
    """
    frame = error.location.frame
    if frame is None:
        return {}
    for name in (_place, _line):
        found = [each for each in equations if each.location.frame and name(each.location.frame) == name(frame)]
        if found:
            return dict.fromkeys(found, error)
    return {}


def _place(frame: Frame) -> tuple[object, ...]:
    return frame.file, frame.line, frame.column, frame.end_line, frame.end_column


def _line(frame: Frame) -> tuple[object, ...]:
    return frame.file, frame.line


def _refused(function: Equations, equation: Equation, target: Target) -> NkiError | None:
    inputs = [variable for variable in equation.inputs if variable not in function.constants]
    alone = function.function([equation], inputs, equation.outputs)
    try:
        module = lower(alone, [shape_of(variable) for variable in inputs], {}, donate=(), static=((), ())).module
        kept = references(module)
        run_passes(module, GraphContext(target))
        del kept  # the kernels that the equation calls were needed until here
    except NkiError as error:
        frame = error.location.frame
        if not error.placed or frame is None or is_own(frame):  # arguments have no line, and functions of JAX ours
            error.location = equation.location
        return error
    except CANNOT_LOWER as problem:
        return _not_lowered(equation, problem)
    return None


def _not_lowered(equation: Equation, problem: Exception) -> GraphError:
    types = ", ".join(str(variable.aval) for variable in equation.inputs)
    results = ", ".join(str(variable.aval) for variable in equation.outputs)
    return GraphError(
        "graph.unsupported",
        f"{equation.name}({types}) -> {results}: {problem}",
        rule="an operation of the model has a kernel that computes it on the device",
        fix="write it with other operations of the framework",
        location=equation.location,
    )
