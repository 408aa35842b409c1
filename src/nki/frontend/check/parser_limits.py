"""What the parser front end of NKI 0.3 to 0.6 refuses, as far as its documents say so."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from nki.core.tensor import NKIObject
from nki.frontend.check.inspection import GUIDE, MIGRATION, CheckedFunction, Found, likely_mistake, not_possible, text
from nki.frontend.check.name_resolution import is_kernel, is_ours
from nki.frontend.check.scopes import Scope
from nki.frontend.check.tracing import defaults
from nki.frontend.check.value_kinds import REGISTERS, TENSORS
from nki.language.loops import no_reorder

_NOTES = "release-notes/components/nki.rst"
_LISTS = f"{MIGRATION}, Replace list kernel arguments with tuples"

# The guide lists what there is, and these are not there.
_UNDESCRIBED: dict[type[ast.AST], tuple[str, str]] = {
    ast.DictComp: ("a comprehension", "write a loop"),
    ast.GeneratorExp: ("a generator expression", "write a loop that fills a list"),
    ast.Lambda: ("a lambda", "define a function"),
    ast.ListComp: ("a comprehension", "write a loop that fills a list"),
    ast.SetComp: ("a comprehension", "write a loop"),
    ast.Try: ("try", "test for the condition before"),
    ast.Yield: ("yield", "return a list"),
    ast.YieldFrom: ("yield from", "return a list"),
}


def identity(body: CheckedFunction) -> Iterator[Found]:
    """``is`` and ``is not``.

    The documents refuse all of them, but kernels that were published for 0.3.0 compare with None so: a warning.
    """
    for node, _ in body.nodes():
        if not isinstance(node, ast.Compare):
            continue
        for operator, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            if isinstance(operator, ast.Is | ast.IsNot):
                word, instead = ("is", "==") if isinstance(operator, ast.Is) else ("is not", "!=")
                found = not_possible(
                    "parser.identity",
                    node,
                    f"{text(node)} compares with {word}",
                    rule="the parser front end has no is and is not",
                    source=f"{MIGRATION}, Replace is / is not with == / !=",
                    fix=f"write {instead}",
                )
                yield replace(found, severity="warning") if _is_none(left) or _is_none(right) else found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def keyword_only(body: CheckedFunction) -> Iterator[Found]:
    """``*`` in the signature of a kernel."""
    owner = body.scope.owner
    if not body.kernel or isinstance(owner, ast.Module | ast.ClassDef) or owner.args.vararg is not None:
        return
    if owner.args.kwonlyargs:
        first = owner.args.kwonlyargs[0]
        yield not_possible(
            "parser.keyword-only",
            first,
            f"parameter {first.arg} and those behind it follow a *",
            rule="signatures of kernels have no * separator",
            source=f"{MIGRATION}, Remove keyword-only argument separator",
            fix="remove the *, and put parameters with defaults last",
        )


def list_arguments(body: CheckedFunction) -> Iterator[Found]:
    """Kernel parameters that are lists, by default or by annotation."""
    for parameter, default in defaults(body):
        if isinstance(default, ast.List | ast.ListComp):
            yield not_possible(
                "argument.list",
                default,
                f"the default of parameter {parameter.arg} is a list",
                rule="kernel arguments are not lists",
                source=_LISTS,
                fix="write a tuple",
            )
    for parameter in body.scope.parameters() if body.kernel else ():
        if parameter.annotation is not None and _is_list(parameter.annotation):
            yield not_possible(
                "argument.list",
                parameter.annotation,
                f"parameter {parameter.arg} is annotated as a list",
                rule="kernel arguments are not lists",
                source=_LISTS,
                fix="take a tuple",
            )


def classes(body: CheckedFunction) -> Iterator[Found]:
    """Classes that are made in a kernel and have another base than NKIObject, or none."""
    for node, scope in body.nodes():
        if not isinstance(node, ast.Call) or (made := _user_class(node, scope, body)) is None:
            continue
        if made.__bases__ != (NKIObject,) and not issubclass(made, enum.Enum | BaseException):
            bases = ", ".join(base.__name__ for base in made.__bases__)
            yield not_possible(
                "parser.class",
                node.func,
                f"class {made.__name__} inherits from {bases}",
                rule="a class that kernels use inherits from NKIObject, and from nothing else",
                source=f"{GUIDE}, Class Support",
                fix=f"write class {made.__name__}(nl.NKIObject), or an Enum",
            )


def dict_keys(body: CheckedFunction) -> Iterator[Found]:
    """Keys of dict displays that are no strings."""
    for node, _ in body.nodes():
        for key in node.keys if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Tuple) or (isinstance(key, ast.Constant) and not isinstance(key.value, str)):
                yield not_possible(
                    "parser.dict-key",
                    key,
                    f"{text(key)} is a key of a dict",
                    rule="keys of dicts are strings",
                    source=f"{GUIDE}, NKI Values",
                    fix="use a string, or a list",
                )


def sub_kernels(body: CheckedFunction) -> Iterator[Found]:
    """Calls of functions that are decorated themselves.

    The documents ask to remove the decorator, but kernels that were published for 0.3.0 keep it: a warning.
    """
    for node, scope in body.nodes():
        if isinstance(node, ast.Call) and is_kernel(body.names.value(node.func, scope)):
            yield likely_mistake(
                "parser.sub-kernel",
                node.func,
                f"{text(node.func)} is a kernel, called by a kernel",
                rule="what a kernel calls is not decorated with nki.jit",
                source=f"{MIGRATION}, Remove nki.jit decorator on sub-kernels",
                fix="remove the decorator, and apply nki.jit where the function is called from the host",
            )


def old_namespace(body: CheckedFunction) -> Iterator[Found]:
    """Names below neuronxcc.nki."""
    for node, scope in body.nodes():
        module = ""
        match node:
            case ast.Name(_, ast.Load()) | ast.Attribute(_, _, ast.Load()):
                module = _module_of(body.names.value(node, scope))
            case ast.ImportFrom(str(module)):
                pass
            case ast.Import(aliases):
                module = aliases[0].name
        if module == "neuronxcc.nki" or module.startswith("neuronxcc.nki."):
            yield not_possible(
                "parser.namespace",
                node,
                f"{text(node)} is taken from {module}",
                rule="kernels do not use the namespace neuronxcc.nki",
                source=f"{_NOTES}, 0.4.0",
                fix="import it from nki",
            )


def register_arithmetic(body: CheckedFunction) -> Iterator[Found]:
    """Python operators on what is only known on the device."""
    for node, scope in body.nodes():
        match node:
            case ast.BinOp(left, _, right):
                operands = [left, right]
            case ast.Compare(left, _, rights):
                operands = [left, *rights]
            case _:
                continue
        if any(body.kinds.of(each, scope) in REGISTERS for each in operands):
            yield not_possible(
                "parser.register-arithmetic",
                node,
                f"{text(node)} computes with a register",
                rule="Python operators do not apply to registers and loop variables of the device",
                source=f"{MIGRATION}, Rules for migrated loops",
                fix="compute in a tensor, and load the register from it",
            )


def host_calls(body: CheckedFunction) -> Iterator[Found]:
    """Calls of NumPy's functions with numbers; those with tensors are wrong in every front end.

    The guide says that libraries are missing and not which; `math` is in its examples. A warning, since not every
    function of NumPy is known to be refused.
    """
    for node, scope in body.nodes():
        if not isinstance(node, ast.Call) or body.names.library(node.func, scope) != "numpy":
            continue
        values = [*node.args, *(word.value for word in node.keywords)]
        if any(body.kinds.of(value, scope) in TENSORS for value in values):
            continue
        root = isinstance(node.func, ast.Attribute) and node.func.attr == "sqrt" and len(node.args) == 1
        yield likely_mistake(
            "parser.numpy",
            node,
            f"{text(node)} calls NumPy while the kernel is compiled",
            rule="not all libraries of Python can be called in a kernel; np.sqrt is known to be refused",
            source=GUIDE,
            fix=f"compute it outside the kernel, or write {_root(node.args[0])}" if root else _OUTSIDE,
        )


_OUTSIDE = "compute it outside the kernel, and use the number"


def _root(value: ast.expr) -> str:
    return f"{text(value)} ** 0.5" if isinstance(value, ast.Name | ast.Constant) else f"({text(value)}) ** 0.5"


def undescribed(body: CheckedFunction) -> Iterator[Found]:
    """Statements and expressions that the guide does not describe; it does not name them as refused either."""
    for node, scope in _with_lambdas(body):
        what, fix = _UNDESCRIBED.get(type(node), ("", ""))
        if isinstance(node, ast.With) and not _is_no_reorder(node, scope, body):
            what, fix = "with, other than nl.no_reorder(),", "call functions instead"
        if what:
            yield likely_mistake(
                "parser.undescribed",
                node,
                f"{what} is not among what the guide to the language describes",
                rule="the parser front end supports a subset of Python",
                source="nki/deep-dives/nki-compiler.rst; nki/guides/nki_simulator.rst, NKI Meta-Programming Support",
                fix=fix,
            )


def _with_lambdas(body: CheckedFunction) -> Iterator[tuple[ast.AST, Scope]]:
    yield from body.nodes()
    for scope in body.scope.within():
        if isinstance(scope.owner, ast.Lambda) and scope.parent is not None and scope is not body.scope:
            yield scope.owner, scope.parent


def _is_no_reorder(node: ast.With, scope: Scope, body: CheckedFunction) -> bool:
    return all(
        isinstance(item.context_expr, ast.Call) and body.names.value(item.context_expr.func, scope) is no_reorder
        for item in node.items
    )


def _is_list(annotation: ast.expr) -> bool:
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
    return name in ("list", "List")


def _user_class(call: ast.Call, scope: Scope, body: CheckedFunction) -> type[Any] | None:
    value = body.names.value(call.func, scope)
    if not isinstance(value, type) or is_ours(value):
        return None
    return value if _is_of_user(value, body) else None


def _is_of_user(made: type[Any], body: CheckedFunction) -> bool:
    top = body.names.function.__module__.partition(".")[0]
    return made.__module__ == "__main__" or made.__module__.partition(".")[0] == top


def _module_of(value: Any) -> str:
    match value:
        case ModuleType():
            return value.__name__
        case type() | FunctionType():
            return value.__module__ or ""
    return ""
