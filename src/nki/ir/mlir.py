"""The only importer of the MLIR bindings: the names that the other files of this package use."""

from __future__ import annotations

import sys
from types import ModuleType

# The bindings look for a Python module of the dialect at every operation and value that they hand out, and a failed
# import costs about 14 µs each time: empty modules end the search.
for _dialect in ("nki", "nisa"):
    sys.modules.setdefault(f"torch_mlir.dialects.{_dialect}", ModuleType(_dialect))

from torch_mlir.dialects.irdl import load_dialects  # noqa: E402
from torch_mlir.execution_engine import ExecutionEngine  # noqa: E402
from torch_mlir.ir import (  # noqa: E402
    ArrayAttr,
    Attribute,
    Block,
    BoolAttr,
    CallSiteLoc,
    Context,
    DenseI32ArrayAttr,
    DenseI64ArrayAttr,
    DynamicType,
    FileLineColLoc,
    FloatAttr,
    InsertionPoint,
    IntegerAttr,
    IntegerType,
    IsTerminatorTrait,
    MLIRError,
    Module,
    NameLoc,
    Operation,
    RankedTensorType,
    StringAttr,
    Type,
    TypeAttr,
    UnitAttr,
    UnknownLoc,
    Value,
    WalkResult,
)
from torch_mlir.ir import Location as MlirLocation  # noqa: E402
from torch_mlir.passmanager import PassManager  # noqa: E402

__all__ = [
    "ArrayAttr",
    "Attribute",
    "Block",
    "BoolAttr",
    "CallSiteLoc",
    "Context",
    "DenseI32ArrayAttr",
    "DenseI64ArrayAttr",
    "DynamicType",
    "ExecutionEngine",
    "FileLineColLoc",
    "FloatAttr",
    "InsertionPoint",
    "IntegerAttr",
    "IntegerType",
    "IsTerminatorTrait",
    "MLIRError",
    "MlirLocation",
    "Module",
    "NameLoc",
    "Operation",
    "PassManager",
    "RankedTensorType",
    "StringAttr",
    "Type",
    "TypeAttr",
    "UnitAttr",
    "UnknownLoc",
    "Value",
    "WalkResult",
    "load_dialects",
]
