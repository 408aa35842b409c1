"""What an operator of random graphs is, and what its choices are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np

from tests.graph.differential.bound import Bound, point
from tests.graph.differential.records import FLOATS, INTEGERS, Input

BATCHES = (1, 2, 3, 3, 4, 5, 127, 128, 129)
ROWS = (1, 2, 3, 7, 31, 32, 64, 127, 128, 129, 130, 256, 257)
FREE = (1, 2, 3, 4, 8, 31, 32, 63, 64, 96, 127, 128, 129, 255, 256, 257, 511, 512, 513, 640, 1024, 2048)
DEPTHS = (1, 2, 3, 16, 32, 64, 64, 127, 128, 129, 256, 513)
CHANNELS = (1, 3, 4, 16, 32, 64, 127, 128, 129)
IMAGES = (4, 7, 8, 14, 16, 23, 28)
MOST = 1 << 19
"""Elements of a tensor, at the most."""


class NoFitError(Exception):
    """There is nothing that an operator could be applied to."""


class Draw:
    """Choices of a graph, and the bounds of what it computes so far.

    Attributes:
        only: dtypes of operands, but for indices; () for any.
        bounds: of all values, by number in the order in which they were made.
        inputs: those values that are inputs.
    """

    def __init__(self, seed: int, language: str) -> None:
        self.random = Random(f"graph {seed}")
        self.seed = seed
        self.language = language
        self.special = False
        self.only: tuple[str, ...] = ()
        self.bounds: list[Bound] = []
        self.inputs: dict[int, Input] = {}

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, shape: tuple[int, ...], dtype: str, kind: str = "", bound: int = 0) -> int:
        """A new input."""
        if prod(shape) > MOST:
            raise NoFitError
        if not kind:
            kind, bound = self._kind(dtype)
        made = Input(tuple(shape), dtype, kind, bound, self.seed * 100 + len(self.inputs))
        self.inputs[len(self.bounds)] = made
        self.bounds.append(point(made.array(), made.dtype))
        return len(self.bounds) - 1

    def _kind(self, dtype: str) -> tuple[str, int]:
        if dtype == "bool":
            return "truth", 0
        if dtype in INTEGERS:
            return "whole", self.one(3, 9, 9, 100)
        return (self.one("special", "normal"), 0) if self.special else (self.one("normal", "normal", "positive"), 0)

    def pick(self, fits: Callable[[Bound], bool]) -> int:
        """A value with a property, most often one of the latest."""
        fitting = [n for n, bound in enumerate(self.bounds) if fits(bound)]
        if not fitting:
            raise NoFitError
        made = [n for n in fitting if n not in self.inputs]
        if made and self.chance(0.75):
            return made[-1] if self.chance(0.7) else self.random.choice(made[-4:])
        return self.random.choice(fitting[-6:])

    def shape(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """Of an input, at the edges of blocks, banks and partitions."""
        if self.chance(0.15) and high == 4:
            return self.one(1, 2, 3), self.one(*CHANNELS), self.one(*IMAGES), self.one(*IMAGES)
        rank = self.one(*[r for r in (1, 2, 2, 3, 3, 3, 4, 4) if low <= r <= high])
        sizes = [self.one(*FREE)]
        if rank > 1:
            sizes.insert(0, self.one(*ROWS))
        while len(sizes) < rank:
            sizes.insert(0, self.one(*BATCHES))
        limit = MOST if self.chance(0.15) else MOST >> 3
        while prod(sizes) > limit:
            largest = max(range(rank), key=lambda d: sizes[d])
            sizes[largest] = self.one(*[n for n in FREE if n < sizes[largest]] or [1])
        return tuple(sizes)

    def spread(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to another one: a scalar, a row, a column, one for each batch, or all of it."""
        kind = self.random.random()
        if kind < 0.15:
            return shape
        if kind < 0.25 or not shape:
            return self.one((), (1,)) if self.language == "jax" else (1,)
        made = tuple(n if self.chance(0.5) else 1 for n in shape)
        while made and made[0] == 1 and len(made) > 1 and self.chance(0.5):
            made = made[1:]
        return made

    def partner(self, x: int, dtypes: tuple[str, ...], kind: str = "") -> int:
        """Another operand for an elementwise operation: a value that is there, or an input that is broadcast."""
        shape = self.bounds[x].shape
        if self.chance(0.4):
            fitting = [n for n, b in enumerate(self.bounds) if b.dtype in dtypes and broadcast(shape, b.shape) == shape]
            if fitting:
                return self.random.choice(fitting[-5:])
        return self.fresh(self.spread(shape), self.one(*dtypes), kind)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape, or None."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        return None


Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        torch, jax: its code; ``{0}`` and ``{1}`` are operands, names are attributes. "" where a framework has none.
        draw: operands by number, and attributes; raises NoFitError.
        bound: of its result; raises UndefinedError.
    """

    name: str
    torch: str
    jax: str
    draw: Callable[[Draw], tuple[tuple[int, ...], dict[str, Any]]]
    bound: Callable[..., Bound]
    weight: float = 1.0

    def code(self, language: str) -> str:
        return self.torch if language == "torch" else self.jax


TABLE: dict[str, Operator] = {}

COMPOSED = frozenset(
    ("softmax", "log_softmax", "silu", "gelu", "gelu_tanh", "softplus", "elu", "mean", "variance", "avg_pool",
     "rms_norm", "sigmoid", "expm1", "logsumexp", "length", "loop")
)  # fmt: skip
"""What JAX makes of several operations, each of which rounds to small dtypes; PyTorch rounds once."""


def enter(
    name: str, torch: str, jax: str, draw: Callable[..., Any], bound: Callable[..., Bound], weight: float = 1.0
) -> None:
    """One more operator. ``bound(attributes, *bounds)``."""
    assert name not in TABLE
    TABLE[name] = Operator(name, torch, jax, draw, bound, weight)


def is_float(x: Bound) -> bool:
    return x.dtype in FLOATS


def is_integer(x: Bound) -> bool:
    return x.dtype in INTEGERS


def is_truth(x: Bound) -> bool:
    return x.dtype == "bool"


def is_number(x: Bound) -> bool:
    return is_float(x) or is_integer(x)
