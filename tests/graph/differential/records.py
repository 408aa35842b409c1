"""A graph as plain data: what is printed, drawn, run and made smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

NUMPY: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int8": np.dtype(np.int8), "int16": np.dtype(np.int16), "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8), "bool": np.dtype(bool),
}  # fmt: skip
FLOATS = ("float32", "bfloat16", "float16")
NARROW = ("float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int32", "int16", "int8", "uint8")


@dataclass(frozen=True)
class Input:
    """An argument of a graph.

    Attributes:
        kind: how its numbers are drawn: "normal", "positive", "unit", "special", "mask", "whole", "truth", "index",
            "unique".
        bound: of "whole" and the indices, which are below it.
    """

    shape: tuple[int, ...]
    dtype: str
    kind: str
    bound: int = 0
    seed: int = 0

    def array(self) -> Array:
        """Its numbers, which depend on the description alone."""
        random = np.random.default_rng([self.seed, 77])
        with np.errstate(over="ignore"):
            return np.asarray(_numbers(self, random)).astype(NUMPY[self.dtype]).reshape(self.shape)


def _numbers(x: Input, random: np.random.Generator) -> Array:
    if x.kind == "truth":
        return np.asarray(random.random(x.shape) < 0.5)
    if x.kind == "index":
        return random.integers(0, x.bound, x.shape)
    if x.kind == "unique":
        return random.permutation(x.bound)[: int(np.prod(x.shape))]
    if x.kind == "whole":
        low = 0 if x.dtype.startswith("u") else -x.bound
        return random.integers(low, x.bound, x.shape, endpoint=True)
    if x.kind == "positive":
        return random.uniform(0.25, 2.0, x.shape)
    if x.kind == "mask":
        return np.where(random.random(x.shape) < 0.3, -np.inf, 0.0)
    numbers = random.standard_normal(x.shape)
    if x.kind == "special":
        where = random.random(x.shape) < 0.05
        numbers = np.where(where, SPECIAL[random.integers(0, len(SPECIAL), x.shape)], numbers)
    return numbers


SPECIAL = np.array(
    [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-39, -1e-39, 1e-45, 1e30, -1e30, 3e38, 65504.0, 1.0, 0.5, 2.5]
)


@dataclass(frozen=True)
class Node:
    """One operator; `operands` are numbers of values: inputs first, then the results of nodes in their order."""

    operator: str
    operands: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """A graph and how it is compiled.

    Attributes:
        front: "torch", "dynamo" (through torch.compile) or "jax".
        native: what NKI_NATIVE is.
        results: numbers of values.
        constants: inputs whose numbers the compiler knows, as it knows the weights of a model from a file.
        derived: whether derivatives of the results are computed, and not they.
    """

    seed: int
    front: str
    target: str
    cores: int
    native: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    results: tuple[int, ...]
    constants: tuple[int, ...] = ()
    derived: bool = False

    @property
    def language(self) -> str:
        """The framework whose functions it calls."""
        return "jax" if self.front == "jax" else "torch"
