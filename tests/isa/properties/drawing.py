"""Drawing the parts of a case: what the declaration allows, in all layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from nki.core.dtypes import DType, float32
from nki.core.tensor import MemoryRegion
from nki.isa import alu, functions
from nki.spec.instruction import REGISTRY
from nki.spec.operand import Operand
from nki.spec.operator import Operator
from nki.target.load import load_target
from nki.target.model import Target
from tests.isa.properties import values
from tests.isa.properties.cases import Case, Same
from tests.isa.properties.formats import NUMERIC, PACKED
from tests.isa.properties.places import LAYOUTS, Tile, buffer_shape

T = TypeVar("T")

OPERATORS = sorted(
    {v for module in (alu, functions) for v in vars(module).values() if isinstance(v, Operator)}, key=str
)
"""Every operator that the package declares."""
BINARY = [op for op in OPERATORS if op.alu in ("arithmetic", "compare", "logical") and op.arity == 2]
UNARY = [op for op in OPERATORS if op.alu == "arithmetic" and op.arity == 1]
BITVEC = [op for op in OPERATORS if op.is_bitvec and op.arity == 2]
FUNCTIONS = [op for op in OPERATORS if op.activation]
_FEATURES = {
    alu.ABS_MAX: "abs_max",
    alu.ABS_MIN: "abs_max",
    alu.SQUARE: "tensor_scalar_unary",
    alu.RELU: "tensor_scalar_unary",
}

TARGETS = tuple(load_target(name) for name in ("trn1", "trn2", "trn3"))
PARTITIONS = (1, 2, 3, 5, 16, 31, 32, 33, 64, 96, 127, 128)
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 65, 100)
_MOST = 1400
"""Elements of a tile, so that a case takes milliseconds."""


def available(operators: Sequence[Operator], target: Target) -> list[Operator]:
    """Those that the ALUs of a target have."""
    return [op for op in operators if op not in _FEATURES or target.has(_FEATURES[op])]


def allowed(instruction: str, operand: str) -> tuple[DType, ...]:
    """The dtypes that a declaration allows: all of the device if it names none."""
    declared: Operand = REGISTRY[instruction].operands[operand]
    if declared.dtypes is None:
        return NUMERIC + (PACKED if REGISTRY[instruction].moves_bits else ())
    return tuple(dtype for dtype in declared.dtypes if dtype.device)


@dataclass(frozen=True)
class Chooser:
    """Draws for one instruction on one target.

    Everything comes from one seed: a seed that differs gives a case that differs in all its parts, where a generator of
    single parts repeats most of the case before. A failure is as small as the case that shows it.
    """

    random: Random
    instruction: str
    target: Target

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return self.random.choice(options)

    def flag(self) -> bool:
        """True or False."""
        return self.random.random() < 0.5

    def number(self) -> float:
        """A number that may stand in a call."""
        return self.pick(values.NUMBERS)

    def rng(self) -> np.random.Generator:
        """A generator for contents."""
        return np.random.default_rng(self.random.getrandbits(32))

    def sizes(self, most: int = _MOST, partitions: Sequence[int] = PARTITIONS, widths: Sequence[int] = WIDTHS) -> Any:
        """Partitions, and elements per partition."""
        rows = self.pick(partitions)
        return rows, self.pick([n for n in widths if n * rows <= most] or [min(widths)])

    def shape(self, partitions: int, count: int) -> tuple[int, ...]:
        """A shape of so many partitions and elements per partition."""
        divisors = [n for n in range(1, count + 1) if count % n == 0]
        inner = self.pick(divisors)
        if inner == count:
            return (partitions, count)
        outer = self.pick([n for n in divisors if count // inner % n == 0])
        rest = (count // inner // outer, inner)
        return (partitions, outer, *rest) if outer > 1 else (partitions, *rest)

    def dtype(self, operand: str) -> DType:
        """An allowed dtype; every other time float32, which hides least."""
        options = allowed(self.instruction, operand)
        return float32 if float32 in options and self.flag() else self.pick(options)

    def tile(
        self,
        operand: str,
        partitions: int,
        count: int,
        dtype: DType | None = None,
        make: values.Maker | None = None,
        psum: bool | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Tile:
        """A tile for an operand, in any layout; in PSUM, if the operand may and `psum` does not say otherwise."""
        declared = REGISTRY[self.instruction].operands[operand]
        dtype = dtype or self.dtype(operand)
        shape = shape or self.shape(partitions, count)
        layout = self.pick(LAYOUTS if declared.writes else (*LAYOUTS, "repeated"))
        if psum is None:
            psum = MemoryRegion.psum in declared.regions and self.pick((False, False, False, True))
        filled = (make or self.pick(values.KINDS))(self.rng(), buffer_shape(shape, layout), dtype)
        return Tile(filled, dtype, shape, layout, bool(psum))

    def filled(self, tile: Tile, contents: Any) -> Tile:
        """The same kind of tile, plain, with these ``(P, F)`` storage values."""
        return Tile(
            np.ascontiguousarray(contents, tile.dtype.numpy).reshape(tile.shape),
            tile.dtype,
            tile.shape,
            "plain",
            tile.psum,
        )

    def column(
        self,
        operand: str,
        partitions: int,
        dtype: DType | None = None,
        make: values.Maker | None = None,
        psum: bool | None = None,
    ) -> Any:
        """A number, or one value for each partition."""
        return self.number() if self.flag() else self.tile(operand, partitions, 1, dtype, make, psum)

    def out(
        self,
        operand: str,
        partitions: int,
        count: int,
        over: Tile | None = None,
        dtype: DType | None = None,
        psum: bool | None = None,
    ) -> Any:
        """A destination, sometimes the first input `over` itself, if that may be written."""
        if over is not None and self.pick((False, False, False, False, True)):
            legal = allowed(self.instruction, operand)
            if over.dtype in legal and over.layout != "repeated" and dtype in (None, over.dtype):
                return Same(first_input(self.instruction))
        return self.tile(operand, partitions, count, dtype, psum=psum)


def first_input(instruction: str) -> str:
    """The name of the first input, on which an instruction may run in place."""
    operands = REGISTRY[instruction].operands
    return next(n for n, operand in operands.items() if operand.reads and operand.is_tensor and not operand.writes)


def cases(instruction: str, calls: Callable[[Chooser], tuple[dict[str, Any], ...]]) -> st.SearchStrategy[Case]:
    """Cases of an instruction on the targets that have it."""
    targets = [target for target in TARGETS if REGISTRY[instruction].exists_on(target)]

    def drawn(seed: int) -> Case:
        random = Random(seed)
        chooser = Chooser(random, instruction, random.choice(targets))
        return Case(instruction, chooser.target.name, calls(chooser), seed)

    return st.integers(0, 2**64 - 1).map(drawn)
