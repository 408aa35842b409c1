"""The only file of the graph compiler that knows the MLIR bindings: contexts, parsing, chlo, printing."""

from __future__ import annotations

import sys
from types import ModuleType

# The bindings look for a Python module of the dialect at every operation that they hand out; empty ones end the search.
for _dialect in ("stablehlo", "chlo", "vhlo"):
    sys.modules.setdefault(f"torch_mlir.dialects.{_dialect}", ModuleType(_dialect))

from torch_mlir._mlir_libs import _stablehlo, _torchMlir  # noqa: E402
from torch_mlir.ir import (  # noqa: E402
    ArrayAttr,
    Attribute,
    Block,
    BoolAttr,
    CallSiteLoc,
    Context,
    DenseElementsAttr,
    DenseResourceElementsAttr,
    DictAttr,
    FileLineColLoc,
    FlatSymbolRefAttr,
    FloatAttr,
    FusedLoc,
    IntegerAttr,
    MLIRError,
    Module,
    NameLoc,
    Operation,
    RankedTensorType,
    StringAttr,
    SymbolRefAttr,
    TupleType,
    Type,
    UnitAttr,
    Value,
)
from torch_mlir.ir import Location as MlirLocation  # noqa: E402
from torch_mlir.passmanager import PassManager  # noqa: E402

from nki.core.isolated import ends_by  # noqa: E402
from nki.core.nesting import MOST, too_deep  # noqa: E402
from nki.core.source import UNKNOWN  # noqa: E402
from nki.graph.errors import GraphError  # noqa: E402

__all__ = [
    "ArrayAttr",
    "Attribute",
    "Block",
    "BoolAttr",
    "CallSiteLoc",
    "DenseElementsAttr",
    "DenseResourceElementsAttr",
    "DictAttr",
    "FileLineColLoc",
    "FlatSymbolRefAttr",
    "FloatAttr",
    "FusedLoc",
    "IntegerAttr",
    "MlirLocation",
    "Module",
    "NameLoc",
    "Operation",
    "RankedTensorType",
    "StringAttr",
    "SymbolRefAttr",
    "TupleType",
    "Type",
    "UnitAttr",
    "Value",
    "context",
    "expand_chlo",
    "parse",
    "survives",
    "unreadable",
]

_BYTECODE = b"ML\xefR"
_PORTABLE = b"StableHLO_v"
_EMPTY = "func.func @empty() {return}"

_stablehlo.register_stablehlo_passes()


def context() -> Context:
    """A context that knows stablehlo, chlo and func, and keeps what it does not know.

    The wheel registers chlo with one of its passes only, so that pass runs over an empty function.
    """
    made = Context()
    made.enable_multithreading(False)
    made.allow_unregistered_dialects = True
    _torchMlir.register_dialect(made)
    _stablehlo.register_dialect(made)
    module = Module.parse(_EMPTY, made)
    PassManager.parse("builtin.module(func.func(convert-torch-to-stablehlo))", made).run(module.operation)
    return made


def parse(source: str | bytes) -> Module:
    """A verified module in a context of its own.

    Args:
        source: MLIR text, MLIR bytecode, or a portable artifact of StableHLO.

    Raises:
        GraphError: "graph.parse" with the parser's own words.
    """
    depth = too_deep(source) if isinstance(source, str) else 0
    if depth:
        raise unreadable(f"brackets are nested {depth} deep, and at most {MOST} are read")
    made = context()
    try:
        if isinstance(source, bytes) and source.startswith(_BYTECODE) and source[5:16].startswith(_PORTABLE):
            return _stablehlo.deserialize_portable_artifact(made, source)
        return Module.parse(source, made)
    except (MLIRError, ValueError) as error:
        raise unreadable(_first_words(error)) from error


def survives(source: str | bytes) -> str:
    """The signal by which parsing ends a process, empty if it does not; damaged bytecode can do that."""
    return ends_by(lambda: parse(source))


def unreadable(what: str) -> GraphError:
    """The error for a source that is no model."""
    return GraphError(
        "graph.parse",
        f"the model is not StableHLO: {what}",
        rule="a model is MLIR text, bytecode or a portable artifact, in operations of stablehlo, chlo and func",
        fix="export the model again, for example with jax.jit(f).lower(...).as_text()",
        location=UNKNOWN,
    )


def expand_chlo(text: str) -> Module:
    """A module in which operations of chlo are spelled out in StableHLO, as far as the wheel knows them."""
    module = parse(text)
    pipeline = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
    PassManager.parse(pipeline, module.context).run(module.operation)
    return module


def _first_words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
    return " ".join(lines[:2]) or str(error).splitlines()[0]
