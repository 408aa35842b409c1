"""MLIR text to machine code of this machine: as an object, or in this process."""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from nki.core.locks import rlock
from nki.ir.mlir import Attribute, Context, ExecutionEngine, MLIRError, MlirLocation, Module, PassManager
from nki.native.objects.elf import EXTERNAL

OPT_LEVEL = 2
"""Level 3 compiles a row kernel half as long again, for the same loop; level 1 takes as long as level 2."""

# math-expand-ops must never be here: it splits fused multiply-adds, and results would differ from the defined ones.
PIPELINE = (
    "builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,"
    "convert-index-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
)

TABLE = "nki_table"
"""Name of the function that writes down the addresses of the others; it is their only user, and keeps them."""

EXACT = frozenset(("absf", "copysign", "floor", "fma", "roundeven", "sqrt"))
"""Operations of the dialect math that are allowed: IEEE 754 defines their results. Others would call the C library."""

_MATH = re.compile(r"\bmath\.(\w+)")
# Of the C library, or fused only where that is fast; the operations on vectors become llvm.intr.fmuladd.
_INEXACT = re.compile(
    r"\bllvm\.intr\.(?:a?(?:sin|cos|tan)h?|atan2|sincos|exp(?:2|10)?|log(?:2|10)?|powi?|fmuladd)\b"
    r"|\bvector\.(?:fma|contract|outerproduct)\b|\barith\.remf\b|\bfastmath\b"
)
_LOCK = rlock()
_KEPT: list[ExecutionEngine] = []
"""Owners of code that somebody has an address of; they stay, as nobody tells when the last address is forgotten."""


class CompileError(Exception):
    """The text is no MLIR that can be compiled; it is this package's own, so this is no fault of the user.

    Args:
        message: what is wrong.
        text: the MLIR that the message is about.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def compile_object(text: str) -> bytes:
    """An object file with every function that a module defines, as local symbols of their names.

    Args:
        text: a module in the dialects func, arith, math, vector, scf, cf and llvm.

    Raises:
        CompileError: the text cannot be parsed, lowered or compiled.
    """
    with _LOCK, _context(), MlirLocation.unknown():
        engine, _ = _compiled(text)
        with tempfile.TemporaryDirectory(prefix="nki-") as directory:
            path = Path(directory) / "object"
            engine.dump_to_object_file(str(path))
            return path.read_bytes()


def in_process(text: str) -> dict[str, int]:
    """Compile a module into the memory of this process, for the rest of it; returns addresses by name.

    Args:
        text: as for `compile_object`.

    Raises:
        CompileError: the text cannot be parsed, lowered or compiled.
    """
    with _LOCK, _context(), MlirLocation.unknown():
        engine, names = _compiled(text)
        _KEPT.append(engine)
        return dict(zip(names, _read_table(engine.raw_lookup(TABLE), len(names)), strict=True))


@cache
def _context() -> Context:
    """One for all: the dialects are loaded once. It has no user-defined ones."""
    context = Context()
    context.enable_multithreading(False)
    return context


@cache  # the pipeline is one text, and parsing it takes longer than a small module
def _passes() -> PassManager:
    return PassManager.parse(PIPELINE)


def _compiled(text: str) -> tuple[ExecutionEngine, list[str]]:
    """The engine, with the code made, and the names of the functions."""
    inexact = {found[0] for found in _MATH.finditer(text) if found[1] not in EXACT} | set(_INEXACT.findall(text))
    if inexact:
        raise CompileError(f"{', '.join(sorted(inexact))}: results would depend on the machine", text)
    try:
        module = Module.parse(text)
        _passes().run(module.operation)
        names = _make_local(module, text)
        engine = ExecutionEngine(module, opt_level=OPT_LEVEL) if names else None
    except (MLIRError, RuntimeError) as error:
        raise CompileError(str(error), text) from error
    if engine is None or not engine.raw_lookup(TABLE):
        raise CompileError("the module defines no function, or calls one that there is not", text)
    return engine, names


def _make_local(module: Module, text: str) -> list[str]:
    """Make the functions that a module defines local, and add the table; returns their names.

    The engine adds to every global function a wrapper that takes its arguments from an array. LLVM inlines the
    function there, that is, compiles it twice; local ones have no wrapper.
    """
    local = Attribute.parse("#llvm.linkage<internal>")
    names = []
    for operation in module.body.operations:
        if operation.operation.name != "llvm.func":
            continue
        name = operation.attributes["sym_name"].value
        if len(operation.regions[0].blocks):
            operation.attributes["linkage"] = local
            names.append(name)
        elif name not in EXTERNAL and not name.startswith("llvm."):
            raise CompileError(f"the module calls {name}, which is not its own", text)
    if not names:
        return names
    # The names are looked up when a module is verified: the table is made in one that declares them, and moved.
    declaring = Module.parse(_table(names))
    module.body.append(list(declaring.body.operations)[-1].detach_from_parent())
    return names


def _table(names: Iterable[str]) -> str:
    lines = []
    for position, name in enumerate(names):
        lines += [
            f"  %f{position} = llvm.mlir.addressof @{name} : !llvm.ptr",
            f"  %p{position} = llvm.getelementptr %table[{position}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            f"  llvm.store %f{position}, %p{position} : !llvm.ptr, !llvm.ptr",
        ]
    declarations = [f"llvm.func @{name}()" for name in names]
    return "\n".join([*declarations, f"llvm.func @{TABLE}(%table: !llvm.ptr) {{", *lines, "  llvm.return", "}"])


def _read_table(wrapper: int, count: int) -> list[int]:
    """Call the table's wrapper, which takes an array of pointers to the arguments."""
    table = (ctypes.c_void_p * count)()
    argument = ctypes.c_void_p(ctypes.addressof(table))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wrapper)(arguments)
    return [address for address in table if address is not None]
