"""All operations with their generators of random cases."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from tests.graph.stablehlo.checking import Outcome, check
from tests.graph.stablehlo.control import CONTROL
from tests.graph.stablehlo.draw import Case, Draw
from tests.graph.stablehlo.indexing import INDEXING
from tests.graph.stablehlo.pointwise import POINTWISE, Generator
from tests.graph.stablehlo.products import PRODUCTS
from tests.graph.stablehlo.reductions import REDUCTIONS
from tests.graph.stablehlo.shapes import SHAPES

FAMILIES: Mapping[str, Mapping[str, Generator]] = {
    "elementwise": POINTWISE,
    "moves": SHAPES,
    "reductions": REDUCTIONS,
    "products": PRODUCTS,
    "indexing": INDEXING,
    "control flow, order, random numbers, normalization": CONTROL,
}
"""By what they have in common."""

OPERATIONS: Mapping[str, Generator] = {name: make for family in FAMILIES.values() for name, make in family.items()}
"""By name; some operations have several generators."""

_CONSTANT_EVERY = 7


def drawn(name: str, number: int, seed: int = 0) -> Case:
    """A case of an operation, the same each time."""
    return OPERATIONS[name](Draw(seed, zlib.crc32(name.encode()), number))


def outcome(name: str, number: int, seed: int = 0, target: str = "trn2") -> tuple[Case, Outcome]:
    """A case and what became of it; in every seventh one the inputs are constants of the model."""
    case = drawn(name, number, seed)
    return case, check(case, target, number % _CONSTANT_EVERY == _CONSTANT_EVERY - 1)
