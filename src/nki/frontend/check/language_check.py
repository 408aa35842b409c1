"""The language check: reads a kernel and what it calls, without running them, and says everything at once.

The default is what tracing needs; ``frontend="0.6"`` adds what the parser front end of NKI 0.3 to 0.6 refuses.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FunctionType, MappingProxyType
from typing import Any

from nki.core.errors import FrontendError
from nki.core.source import Frame, Location
from nki.frontend.check import parser_limits as parser
from nki.frontend.check import purity, tracing
from nki.frontend.check import tensor_values as values
from nki.frontend.check.inspection import CheckedFunction, Found
from nki.frontend.check.name_resolution import function_of, is_kernel, is_user_code, names_of
from nki.frontend.check.source import FunctionSource, source_of
from nki.frontend.check.value_kinds import Kinds, passed_tensors, tensor_parameters
from nki.spec.rule import Finding, error_of

Check = Callable[[CheckedFunction], Iterator[Found]]

TRACER: tuple[Check, ...] = (
    tracing.generators,
    tracing.loop_variables,
    purity.reads_of_state,
    purity.writes_to_state,
    purity.writes_to_arguments,
    values.host_functions,
    values.assignments,
    values.truth,
    values.register_values,
    values.unused_results,
)
PARSER: tuple[Check, ...] = (
    *TRACER,
    parser.identity,
    parser.keyword_only,
    parser.list_arguments,
    parser.classes,
    parser.dict_keys,
    parser.sub_kernels,
    parser.old_namespace,
    parser.register_arithmetic,
    parser.host_calls,
    parser.undescribed,
)
FRONTENDS = MappingProxyType({"0.6": PARSER, "0.7": TRACER})
"""The checks of a front end by the NKI version that it is the newest of."""


def check_function(function: Callable[..., Any], frontend: str = "0.7") -> tuple[Finding, ...]:
    """What is wrong with a kernel, in the order of its source and then of what it calls; remembered per function.

    Functions without source, and libraries, are not looked at.

    Args:
        function: the undecorated function.
        frontend: a key of `FRONTENDS`.
    """
    found = function_of(function)
    return _checked(weakref.ref(found), frontend) if found is not None else ()


def raise_errors(findings: tuple[Finding, ...], disabled: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """Raise the first error, which carries all findings; return the warnings. `disabled` codes are left out."""
    kept = tuple(finding for finding in findings if finding.code not in disabled)
    for finding in kept:
        if finding.severity == "error":
            error = error_of(finding, FrontendError)
            error.found = tuple(other for other in kept if other is not finding)
            raise error
    return kept


@lru_cache(maxsize=512)
def _checked(reference: weakref.ref[FunctionType], frontend: str) -> tuple[Finding, ...]:
    """Keyed by a weak reference, so that remembering does not keep what a closure holds."""
    kernel = reference()
    return tuple(_findings(kernel, FRONTENDS[frontend])) if kernel is not None else ()


def _findings(kernel: FunctionType, checks: tuple[Check, ...]) -> Iterator[Finding]:
    told: set[tuple[str, Frame]] = set()
    for body, chain in _bodies(kernel):
        found = [each for check in checks for each in check(body)]
        for each in found:
            frame = body.names.source.frame(each.node)
            if (each.code, frame) not in told:
                told.add((each.code, frame))
                yield _placed(each, Location((frame, *chain)))


def _placed(found: Found, location: Location) -> Finding:
    return Finding(
        found.code, found.severity, found.message, found.rule, found.source, found.fix, location, MappingProxyType({})
    )


def _bodies(kernel: FunctionType) -> Iterator[tuple[CheckedFunction, tuple[Frame, ...]]]:
    """The kernel and the user's functions that it calls, each with the calls that lead to it, innermost first."""
    pending: list[tuple[FunctionType, frozenset[str] | None, tuple[Frame, ...]]] = [(kernel, None, ())]
    seen: set[tuple[FunctionType, frozenset[str] | None]] = set()
    while pending:
        function, given, chain = pending.pop(0)
        source = source_of(function.__code__)
        if source is None or (function, given) in seen:
            continue
        seen.add((function, given))
        body = _body(function, source, given)
        yield body, chain
        pending += [(callee, tensors, (source.frame(call), *chain)) for callee, tensors, call in _calls(body, kernel)]


def _calls(body: CheckedFunction, kernel: FunctionType) -> Iterator[tuple[FunctionType, frozenset[str], ast.Call]]:
    """The user's functions that a function calls, with the parameters that get tensors."""
    for node, scope in body.nodes():
        if not isinstance(node, ast.Call):
            continue
        value = body.names.value(node.func, scope)
        callee = function_of(value)
        if callee is None or callee is body.names.function or not is_user_code(callee, kernel):
            continue
        # Partial objects, methods and classes fill parameters of their own.
        plain = isinstance(value, FunctionType) or is_kernel(value)
        yield callee, passed_tensors(node, callee, body.kinds, scope) if plain else frozenset(), node


def _body(function: FunctionType, source: FunctionSource, given: frozenset[str] | None) -> CheckedFunction:
    names = names_of(function, source)
    parameters = tensor_parameters(names) if given is None else given
    once = {name for name in parameters if len(source.scope.bindings.get(name, [])) == 1}
    return CheckedFunction(names, Kinds(names, frozenset(once)), kernel=given is None)
