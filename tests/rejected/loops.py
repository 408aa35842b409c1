"""Errors inside of loops, and loops that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused("access.out-of-bounds", X, at="tile[:, nl.ds(i * 3, 3)]", cure=edit("3, 3)", "2, 2)", "range(3)", "range(4)"))
def third_trip_of_a_python_loop(a: Any) -> None:
    tile = nl.load(a)
    for i in range(3):
        nisa.memset(tile[:, nl.ds(i * 3, 3)], 0)


@refused("tensor_copy.shapes", X, at="nisa.tensor_copy(dst=tile, src=tile[:, 0:4])", cure=edit("tile[:, 0:4]", "tile"))
def body_of_a_device_loop(a: Any) -> None:
    tile = nl.load(a)

    def body(i: Any) -> None:
        nisa.tensor_copy(dst=tile, src=tile[:, 0:4])

    nl.fori_loop(0, 4, body)


@refused(
    "access.dynamic-out-of-bounds",
    X,
    at="nisa.dma_copy(dst=row, src=a.select(0, i))",
    cure=edit("(0, 6,", "(0, 4,"),
)
def last_trips_of_a_device_loop(a: Any) -> None:
    row = nl.ndarray((1, 8), nl.float32)

    def body(i: Any) -> None:
        nisa.dma_copy(dst=row, src=a.select(0, i))

    nl.fori_loop(0, 6, body)


@refused(
    "access.out-of-bounds",
    X,
    at="tile[:, 8:12]",
    cure=edit("8:12", "7:8"),
)
def slice_that_starts_outside(a: Any) -> None:
    tile = nl.load(a)
    for _ in range(2):
        nisa.memset(tile[:, 8:12], 0)


@refused("register_move.frozen", X, at="nisa.register_move(i, 3)", cure=edit("(i, 3)", "(nisa.register_alloc(), i)"))
def index_that_is_written(a: Any) -> None:
    def body(i: Any) -> None:
        nisa.register_move(i, 3)

    nl.fori_loop(0, 4, body)


@refused("access.dynamic-index", X, at="tile[:, i]", cure=edit("tile[:, i]", "tile.select(1, i).expand_dim(1)"))
def index_in_brackets(a: Any) -> None:
    tile = nl.load(a)

    def body(i: Any) -> None:
        nisa.memset(tile[:, i], 0)

    nl.fori_loop(0, 4, body)


@refused(
    "register.python-value",
    X,
    at="range(count)",
    cure=edit(  # nl.dynamic_range needs a source file
        "for _ in range(count):\n        nisa.memset(tile, 0)", "nl.fori_loop(0, count, lambda i: nisa.memset(tile, 0))"
    ),
)
def range_of_a_register(a: Any) -> None:
    tile, count = nl.load(a), nisa.register_alloc(4)
    for _ in range(count):
        nisa.memset(tile, 0)


@refused("register.python-value", X, at="bool(flag)", cure=None)
def branch_on_a_register(a: Any) -> None:
    tile, flag = nl.load(a), nisa.register_alloc(1)
    if bool(flag):
        nisa.memset(tile, 0)


@refused("register.python-value", X, at="count + 1", cure=None)
def arithmetic_with_a_register(a: Any) -> None:
    tile, count = nl.load(a), nisa.register_alloc(4)
    nl.fori_loop(0, count + 1, lambda i: nisa.memset(tile, 0))


@refused("language.integer", X, at="nl.fori_loop(0, 8 / 2, body)", cure=edit("8 / 2", "8 // 2"))
def fractional_bound(a: Any) -> None:
    tile = nl.load(a)

    def body(i: Any) -> None:
        nisa.memset(tile, 0)

    nl.fori_loop(0, 8 / 2, body)


@refused("loop.step", X, at="nl.fori_loop(4, 0, body, step=-1)", cure=edit("4, 0, body, step=-1", "0, 4, body, step=1"))
def loop_that_counts_down(a: Any) -> None:
    tile = nl.load(a)

    def body(i: Any) -> None:
        nisa.memset(tile, 0)

    nl.fori_loop(4, 0, body, step=-1)


@refused("loop.result", X, at="nl.fori_loop(0, 4, lambda i: tile)", cure=edit("lambda i: tile", "lambda i: None"))
def body_with_a_result(a: Any) -> None:
    tile = nl.load(a)
    nl.fori_loop(0, 4, lambda i: tile)


@refused(
    "loop.body",
    X,
    at="nl.fori_loop(0, 4, nisa.memset(tile, 0))",
    cure=edit("nisa.memset(tile, 0)", "lambda i: nisa.memset(tile, 0)"),
)
def call_instead_of_a_function(a: Any) -> None:
    tile = nl.load(a)
    nl.fori_loop(0, 4, nisa.memset(tile, 0))


@refused(
    "loop.condition",
    X,
    at="nl.while_loop(1, lambda r: r)",
    cure=edit("while_loop(1, lambda r: r)", "while_loop(nisa.register_alloc(0), lambda r: r)"),
)
def condition_that_is_a_number(a: Any) -> None:
    nl.while_loop(1, lambda r: r)


@refused(
    "loop.no-reorder",
    X,
    at="nl.fori_loop(0, 4, lambda i: nisa.memset(tile, 0))",
    cure=edit("nl.fori_loop(0, 4, lambda i: nisa.memset(tile, 0))", "[nisa.memset(tile, 0) for _ in range(4)]"),
)
def device_loop_in_order(a: Any) -> None:
    tile = nl.load(a)
    with nl.no_reorder():
        nl.fori_loop(0, 4, lambda i: nisa.memset(tile, 0))


@refused(
    "register.uninitialized",
    X,
    at="nl.fori_loop(0, count, lambda i: nisa.memset(tile, 0))",
    cure=edit("register_alloc()", "register_alloc(2)"),
)
def bound_without_a_value(a: Any) -> None:
    tile, count = nl.load(a), nisa.register_alloc()
    nl.fori_loop(0, count, lambda i: nisa.memset(tile, 0))


@refused(
    "register_load.one-element",
    X.astype(np.int32),
    at="nisa.register_load(count, a)",
    cure=edit("(count, a)", "(count, a[0:1, 0:1])"),
)
def register_from_a_matrix(a: Any) -> None:
    count = nisa.register_alloc()
    nisa.register_load(count, a)


@refused(
    "loop.body",
    X,
    at="nl.fori_loop(0, 4, lambda: nisa.memset(tile, 0))",
    cure=edit("lambda:", "lambda i:"),
)
def body_without_an_index(a: Any) -> None:
    tile = nl.load(a)
    nl.fori_loop(0, 4, lambda: nisa.memset(tile, 0))
