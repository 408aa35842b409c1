"""Examples of register_move, register_load and register_store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import int32
from nki.isa.register import register_alloc, register_load, register_move, register_store
from nki.spec.sink import current_sink
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store


def numbers(*values: Any, dtype: Any = np.int32) -> Callable[[], tuple[Any, ...]]:
    return lambda: (np.array([values], dtype),)


def doubled_moves(a: Any) -> Any:
    """Constants and copies, among them one that wraps."""
    result = nl.ndarray((1, 3), int32, buffer=nl.sbuf)
    first, second = register_alloc(7), register_alloc()
    register_move(second, src=first)
    register_move(first, 2**32 - 2)
    for i, register in enumerate((first, second, register_alloc(-(2**31)))):
        register_store(result[:, i : i + 1], register)
    return store(result)


def through(dtype: Any = None) -> Callable[[Any], Any]:
    """Every element through a register into a tensor of another dtype."""

    def kernel(a: Any) -> Any:
        tile = load(a)
        out = nl.ndarray(a.shape, dtype or a.dtype, buffer=nl.shared_hbm)
        register = register_alloc()
        for i in range(a.shape[1]):
            register_load(register, tile[0, i])
            register_store(out[0:1, i : i + 1], register)
        return out

    return kernel


def selected(a: Any) -> Any:
    """The first element says which element comes out."""
    tile = nl.ndarray((1, 1), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a.select(1, register_alloc(a[0:1, 0:1])))
    return store(tile)


def in_loop(write: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        tile = load(a)
        current_sink("for_loop").for_loop(0, 2, 1, lambda index: write(index, tile))
        return store(tile)

    return kernel


def load_two(a: Any) -> Any:
    register_load(register_alloc(0), load(a)[0:1, 0:2])
    return a


def store_two(a: Any) -> Any:
    tile = load(a)
    register_store(tile[0:1, 0:2], register_alloc(0))
    return store(tile)


def move_large(a: Any) -> Any:
    register_alloc(2**32)
    return store(load(a))


EXAMPLES = [
    Legal("register_move", doubled_moves, numbers(0), lambda a: np.array([[-2, 7, -(2**31)]])),
    Legal("register_load", through(np.int32), numbers(-3, 127, -128, dtype=np.int8), lambda a: a.astype(np.int32)),
    Legal("register_load", through(np.int32), numbers(200, 255, dtype=np.uint8), lambda a: a.astype(np.int32)),
    Legal("register_load", selected, numbers(2, 5, 9, 4), lambda a: np.array([[9]])),
    Legal("register_store", through(), numbers(1.5, -0.0, np.inf, np.nan, dtype=np.float32), lambda a: a),
    Legal("register_store", through(np.uint8), numbers(258, -1), lambda a: np.array([[2, 255]])),
    Breaks("register_move.frozen", in_loop(lambda index, tile: register_move(index, 1)), numbers(1)),
    Breaks("register_move.range", move_large, numbers(1)),
    Breaks("register_load.frozen", in_loop(register_load), numbers(1)),
    Breaks("register_load.one-element", load_two, numbers(1, 2)),
    Breaks("register_store.one-element", store_two, numbers(1, 2)),
]
