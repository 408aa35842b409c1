"""What is done to a projection's sums while they leave PSUM: scale, bias, clamps, activation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.mlp.tokens import along, columns_of_vector
from nkilib.core.mlp.weight_products import Weights
from nkilib.core.utils.common_types import ActFnType
from nkilib.streaming import ceil_div, load, load_repeated, sbuf, size

FUNCTIONS = {
    ActFnType.SiLU: nl.silu,
    ActFnType.GELU: nl.gelu,
    ActFnType.GELU_Tanh_Approx: nl.gelu_apprx_tanh,
    ActFnType.Swish: nl.gelu_apprx_sigmoid,
    ActFnType.ReLU: nl.relu,
    ActFnType.SquaredReLU: nl.relu,
}


@dataclass(frozen=True)
class Projection:
    """A product with weights and what follows it, as arguments of the kernel have it.

    Attributes:
        weights: views of the matrix in HBM.
        bias: ``(1, columns)`` in HBM, or None.
        scale: of quantised weights: ``(128, columns)``, all rows alike, or ``(128, 1)``; or None.
        low, high: clamps of the sums with bias, or None.
        input_scale: ``(128, 1)``, of activations of 8 bits; or None.
    """

    weights: Weights
    bias: Any = None
    scale: Any = None
    low: float | None = None
    high: float | None = None
    input_scale: Any = None

    @property
    def columns(self) -> int:
        """Of the weights."""
        return int(self.weights[0].shape[2])

    def on_partitions(self, columns: slice) -> Finish:
        """For sums of some columns, which lie on partitions."""
        scale = _column(self.scale, columns, self.input_scale)
        return Finish(self, scale, _column(self.bias, columns), True)

    def on_rows(self, tokens: int) -> Finish:
        """For sums of up to so many tokens, which lie on partitions."""
        scale = _row(self.scale, self.columns, tokens, self.input_scale)
        return Finish(self, scale, _row(self.bias, self.columns, tokens), False)


def _column(vector: Any, columns: slice, factor: Any = None) -> Any:
    if vector is None or not _one_number(vector):
        return None if vector is None else columns_of_vector(vector[0:1, columns])
    return _number(vector, factor).broadcast(1, ceil_div(size(columns), nl.tile_size.pmax))


def _row(vector: Any, columns: int, tokens: int, factor: Any = None) -> Any:
    if vector is None or not _one_number(vector):
        return None if vector is None else load_repeated(vector[0:1, :], tokens)
    return _number(vector, factor)[0:tokens, :].broadcast(1, columns)


def _number(scale: Any, factor: Any) -> Any:
    """One scale, or the product of two, on each of 128 partitions."""
    tile = load(scale)
    if factor is not None:
        nisa.tensor_tensor(dst=tile, data1=tile, data2=load(factor), op=nl.multiply)
    return tile


def _one_number(vector: Any) -> bool:
    """Whether it is one scale, on each of 128 partitions."""
    return tuple(vector.shape) == (nl.tile_size.pmax, 1)


@dataclass(frozen=True)
class Finish:
    """A projection's vectors where its sums need them.

    Attributes:
        projection: whose sums.
        scale, bias: in SBUF, in the layout of the sums; or None.
        columns: whether columns of the weights lie on partitions.
    """

    projection: Projection
    scale: Any
    bias: Any
    columns: bool

    def applied(self, sums: Any, part: slice, into: Any = None) -> Any:
        """What scale, bias and clamps make of sums in PSUM: the sums themselves if there are none of these.

        Args:
            sums: ``(columns, tiles, tokens)`` or ``(tokens, columns)``.
            part: which tiles of the vectors' columns, or which columns.
            into: where the last of these steps writes; by default a new float32 tile, as for the others.
        """
        steps = self._steps(sums, part)
        value = sums
        for number, step in enumerate(steps):
            last = into is not None and number == len(steps) - 1
            target = into if last else sbuf(sums.shape, nl.float32)
            step(target, value)
            value = target
        return value

    def _steps(self, sums: Any, part: slice) -> list[Callable[[Any, Any], None]]:
        steps: list[Callable[[Any, Any], None]] = []
        for vector, op in ((self.scale, nl.multiply), (self.bias, nl.add)):
            if vector is not None:
                steps.append(partial(_combine, op, self._beside(vector, sums, part)))
        for limit, op in ((self.projection.high, nl.minimum), (self.projection.low, nl.maximum)):
            if limit is not None:
                steps.append(partial(_clamp, op, float(limit)))
        return steps

    def _beside(self, vector: Any, sums: Any, part: slice) -> Any:
        partitions = sums.shape[0]
        return along(vector, partitions, part, sums.shape[2]) if self.columns else vector[0:partitions, part]


def _combine(op: Any, vector: Any, target: Any, value: Any) -> None:
    nisa.tensor_tensor(dst=target, data1=value, data2=vector, op=op)


def _clamp(op: Any, limit: float, target: Any, value: Any) -> None:
    nisa.tensor_scalar(dst=target, data=value, op0=op, operand0=limit)


def activate(target: Any, value: Any, function: ActFnType) -> None:
    """An activation function of each element."""
    nisa.activation(dst=target, op=FUNCTIONS[function], data=value)
    if function is ActFnType.SquaredReLU:
        nisa.tensor_tensor(dst=target, data1=target, data2=target, op=nl.multiply)
