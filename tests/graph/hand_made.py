"""Models made by hand, whose kernels are tiny: additions and products of tiles, one group for each operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, float32
from nki.core.source import Frame, Location
from nki.graph.ir import Function, Group, Module, Op, TensorType, Value
from nki.target.model import Target

_OPERATORS = {"add": nl.add, "multiply": nl.multiply, "subtract": nl.subtract, "maximum": nl.maximum}
_COMPARES = {"LT": nl.less, "GT": nl.greater}


def value(name: str, *shape: int, dtype: DType = float32) -> Value:
    return Value(TensorType(shape, dtype), name)


def line(number: int) -> Location:
    return Location((Frame("model.py", "forward", number),))


def group(name: str, operands: Sequence[Value], result: Value, at: int = 1, **attributes: Any) -> Group:
    op = Op(name, tuple(operands), (result,), attributes, location=line(at))
    return Group("pointwise", (op,), tuple(dict.fromkeys(operands)), (result,))


def constant(array: np.ndarray, dtype: DType = float32) -> Op:
    return Op("constant", (), (Value(TensorType(array.shape, dtype), "weight"),), {"value": array})


def whole(op: Op) -> Group:
    """A group that is no kernel: control flow, a reshape or a call of the user's kernel."""
    return Group(op.name, (op,), op.operands, op.results)


def module(arguments: Sequence[Value], body: Sequence[Op | Group], *results: Value) -> Module:
    return Module({"main": Function("main", tuple(arguments), list(body), tuple(results))})


def two_operands(item: Group, target: Target) -> Any:
    """A kernel for one operation of two operands of at most 128 rows, or of elements of one row."""
    op = item.ops[0]
    operator = _OPERATORS.get(op.name) or _COMPARES[op.attributes["comparison_direction"]]
    same = len(item.inputs) == 1

    def kernel(*tensors: Any) -> None:
        a, b, out = tensors[0], tensors[0 if same else 1], tensors[-1]
        tiles = []
        for source in (a, b):
            tile = nl.ndarray(_tile(source.shape), source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source)
            tiles.append(tile)
        made = nl.ndarray(_tile(out.shape), out.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=made, data1=tiles[0], data2=tiles[1], op=operator)
        nisa.dma_copy(dst=out, src=made)

    return kernel


def _tile(shape: Sequence[int]) -> tuple[int, int]:
    return (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else (1, shape[0])


EMITTERS = {"pointwise": two_operands}
