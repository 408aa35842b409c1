"""What Python does with numbers, asked of tensors, and the functions of nki.language asked of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import INTS, Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused("tensor.arithmetic", X, at="tile + 1", cure=edit("tile + 1", "nl.add(tile, 1)"))
def sum_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile + 1)


@refused("tensor.arithmetic", X, at="2.0 / tile", cure=edit("2.0 / tile", "nl.multiply(2.0, nl.reciprocal(tile))"))
def quotient_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, 2.0 / tile)


@refused("tensor.arithmetic", X, at="-tile", cure=edit("-tile", "nl.negative(tile)"))
def negation_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, -tile)


@refused("tensor.arithmetic", X, at="tile < tile", cure=edit("tile < tile", "nl.less(tile, tile)"))
def comparison_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile < tile)


@refused("tensor.arithmetic", X, at="tile == tile", cure=edit("tile == tile", "nl.equal(tile, tile)"))
def equality_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile == tile)


@refused("tensor.python-value", X, at="float(tile)", cure=None)
def tile_as_a_float(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile, float(tile))


@refused(
    "tensor.name",
    X,
    at="nl.ndarray((4, 8), nl.float32, name=5)",
    cure=edit("name=5", 'name="5"'),
)
def name_that_is_a_number(a: Any) -> None:
    nl.ndarray((4, 8), nl.float32, name=5)


@refused(
    "operand.operator",
    X,
    at="nisa.activation(tile, max, tile)",
    cure=edit("tile, max,", "tile, nl.exp,"),
)
def activation_of_python(a: Any) -> None:
    tile = nl.load(a)
    nisa.activation(tile, max, tile)


@refused("tensor.arithmetic", X, at="tile / 2", cure=edit("tile / 2", "nl.multiply(tile, 1 / 2)"))
def half_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile / 2)


@refused(
    "tensor.arithmetic",
    INTS,
    at="tile // 3",
    cure=edit("tile // 3", "nl.floor(nl.multiply(nl.add(tile, 0.5, dtype=nl.float32), 1 / 3), dtype=nl.int32)"),
)
def floor_quotient_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile // 3)


@refused("tensor.arithmetic", X, at="tile**2", cure=edit("tile**2", "nl.square(tile)"))
def square_with_an_operator(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile**2)


@refused(
    "tensor.arithmetic",
    X,
    at="tile > 0",
    cure=edit(
        "if tile > 0:\n        tile = nl.add(tile, 1)",
        "mask = nl.greater(tile, 0)\n    tile = nl.where(mask, nl.add(tile, 1), tile)",
    ),
)
def choice_with_if(a: Any) -> None:
    tile = nl.load(a)
    if tile > 0:
        tile = nl.add(tile, 1)
    nl.store(a, tile)


@refused(
    "tensor.arithmetic",
    X,
    at="tile > 0",
    cure=edit("tile > 0 and tile < 9", "nl.logical_and(nl.greater(tile, 0), nl.less(tile, 9))"),
)
def masks_with_and(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, tile > 0 and tile < 9)


@refused("tensor.arithmetic", X, at="max(tile, 0)", cure=edit("max(tile, 0)", "nl.maximum(tile, 0)"))
def maximum_of_python(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, max(tile, 0))


@refused("tensor.iteration", X, at="sum(tile)", cure=edit("sum(tile)", "nl.sum(tile, axis=1)"))
def sum_of_python(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a[:, 0:1], sum(tile))


@refused("language.tile", X, at="nl.sqrt(64.0)", cure=edit("nl.sqrt(64.0)", "__import__('math').sqrt(64.0)"))
def root_of_a_number(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, nl.multiply(tile, 1 / nl.sqrt(64.0)))


@refused("language.two-numbers", X, at="nl.maximum(2, 3)", cure=edit("nl.maximum(2, 3)", "max(2, 3)"))
def maximum_of_numbers(a: Any) -> None:
    tile = nl.load(a)
    nl.store(a, nl.multiply(tile, nl.maximum(2, 3)))


@refused(
    "call.destination",
    X,
    at="nisa.register_move(src=2)",
    cure=edit("nisa.register_move(src=2)", "nisa.register_alloc(2)"),
)
def register_of_a_number(a: Any) -> None:
    tile, count = nl.load(a), nisa.register_move(src=2)
    nl.fori_loop(0, count, lambda i: nisa.memset(tile, 0))


@refused(
    "language.region",
    X,
    at="nl.store(tile, a)",
    cure=edit("nl.store(tile, a)", "nl.store(a, tile)"),
)
def store_of_the_other_side(a: Any) -> None:
    tile = nl.load(a)
    nl.store(tile, a)


@refused(
    "tensor.partitions",
    np.ones((4, 256), np.float32),
    at="nl.transpose(tile)",
    cure=edit("nl.transpose(tile)", "[nl.transpose(tile[:, i:i + 128]) for i in (0, 128)]"),
)
def transpose_of_many_columns(a: Any) -> None:
    tile = nl.load(a)
    nl.transpose(tile)


@refused(
    "tensor.iteration",
    X,
    at="iter(tile)",
    cure=edit("for row in iter(tile):", "for i in range(tile.shape[1]):", "(row, row, ", "(tile[:, i], tile[:, i], "),
)
def iteration_over_partitions(a: Any) -> None:
    tile = nl.load(a)
    for row in iter(tile):
        nisa.tensor_scalar(row, row, nl.add, 1.0)
