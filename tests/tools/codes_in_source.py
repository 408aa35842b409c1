"""Finds every error code in the source of the package, by reading it, not by running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nki.core.errors as errors
from nki.passes.proof import faults

PACKAGE = Path(errors.__file__).resolve().parents[1]
LIBRARY = PACKAGE.parent / "nkilib"
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.NkiError)}
TAKES_CODE_FIRST = ERRORS | {"Finding", "GraphError", "KernelLimit", "NrtError"}


@cache
def calls_and_functions() -> tuple[list[tuple[Path, ast.Call]], list[ast.FunctionDef]]:
    """Of every file of the package, which is read once."""
    calls, functions = [], []
    for path in sorted([*PACKAGE.rglob("*.py"), *LIBRARY.rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                calls.append((path, node))
            elif isinstance(node, ast.FunctionDef):
                functions.append(node)
    return calls, functions


def shown(path: Path) -> Path:
    """From the package's folder; of the library's files with its name."""
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else LIBRARY.parent)


def forwarders() -> dict[str, int]:
    """Functions with a parameter called `code`, and its position in a call."""
    found = {}
    for node in calls_and_functions()[1]:
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
        if "code" in names and node.name != "__init__":
            found[node.name] = names.index("code")
    return found


def defaults() -> Iterator[ast.expr]:
    """What `code` is if a call does not say."""
    for node in calls_and_functions()[1]:
        given = [*node.args.posonlyargs, *node.args.args]
        pairs = zip(given[len(given) - len(node.args.defaults) :], node.args.defaults, strict=True)
        yield from (value for argument, value in pairs if argument.arg == "code")


def literals(value: ast.expr) -> Iterator[str]:
    """The strings that an expression may be."""
    match value:
        case ast.Constant(str(text)):
            yield text
        case ast.IfExp():
            yield from literals(value.body)
            yield from literals(value.orelse)


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def code_argument(node: ast.Call, position: int) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == "code":
            return keyword.value
    return node.args[position] if len(node.args) > position else None


@cache
def codes() -> dict[str, str]:
    """Code -> one place that uses it."""
    positions = {**forwarders(), **dict.fromkeys(TAKES_CODE_FIRST, 0)}
    found = {text: "a default" for value in defaults() for text in literals(value)}
    found |= dict.fromkeys(faults.CODES.values(), "passes/proof/faults.py")
    for path, node in calls_and_functions()[0]:
        if called(node) in positions:
            argument = code_argument(node, positions[called(node)])
            for text in literals(argument) if argument is not None else ():
                found[_family(path, node) + text] = f"{shown(path)}:{node.lineno}"
    return {text: place for text, place in found.items() if "." in text and " " not in text}


def _family(path: Path, node: ast.Call) -> str:
    """What `nki.beta1.errors.refused` puts in front of a code of the published list."""
    return "beta1." if called(node) == "refused" and path.is_relative_to(PACKAGE / "beta1") else ""


def computed() -> list[str]:
    """Places where an error's code is put together, so that nobody can look it up."""
    found = []
    for path, node in calls_and_functions()[0]:
        if called(node) in TAKES_CODE_FIRST and isinstance(code_argument(node, 0), ast.JoinedStr | ast.BinOp):
            found.append(f"{shown(path)}:{node.lineno}")
    return found
