"""Kernels that spread a row over the partitions, for the tests of forwarding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.language.memory import copied_tile
from nki.spec.program import Program

ROWS, COLUMNS = 128, 64
X = np.linspace(-3.0, 5.0, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
ROW = np.linspace(0.5, 2.5, COLUMNS, dtype=np.float32).reshape(1, COLUMNS)
LOADS, BROADCAST, STORE = ["dma_copy", "dma_copy"], ["memset", "nc_matmul"], ["dma_copy"]
COPY = "activation"

Use = Callable[[Any, Any, Any], Any]
"""What a kernel does with a tile, a row and its output."""


def around(use: Use, columns: int = COLUMNS) -> Callable[[Any, Any], Any]:
    """A kernel that loads a tile and a row, does something, and stores the tile."""

    def kernel(a: Any, b: Any) -> Any:
        x = sbuf((ROWS, COLUMNS))
        row = sbuf((1, columns))
        nisa.dma_copy(dst=x, src=a)
        nisa.dma_copy(dst=row, src=b)
        out = nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        use(x, row, out)
        nisa.dma_copy(dst=out, src=x)
        return out

    return kernel


def sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(shape: tuple[int, ...], **place: Any) -> Any:
    return nl.ndarray(shape, nl.float32, buffer=nl.psum, **place)


def wide(row: Any) -> Any:
    return nl.broadcast_to(row, (ROWS, row.shape[1]))


def times(x: Any, other: Any, **how: Any) -> Any:
    return nisa.tensor_tensor(dst=x, data1=x, data2=other, op=nl.multiply, **how)


def product(row: Any, columns: int = COLUMNS) -> Any:
    """The row on all partitions of PSUM."""
    ones, found = sbuf((1, ROWS)), psum((ROWS, columns))
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=found, stationary=ones, moving=row)
    return found


def by_hand(row: Any, **how: Any) -> Any:
    """What the language makes of a row, with a copy that can be another one."""
    tile = copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.activation(**{"dst": tile, "op": nl.copy, "data": product(row), **how})
    return tile


def counted(program: Program) -> Counter[str]:
    return Counter(issued.instruction.name for issued in program.body.walk())


def multiplied(x: Any, row: Any, out: Any) -> None:
    """The Tensor engine reads SBUF only."""
    tile, found = wide(row), psum((COLUMNS, COLUMNS))
    nisa.nc_matmul(dst=found, stationary=tile, moving=x)
    nisa.tensor_copy(dst=x[0:COLUMNS], src=found)


def all_at_once(x: Any, row: Any, out: Any) -> None:
    """Eight rows, and then their readers."""
    for one in [wide(row) for _ in range(8)]:
        times(x, one)
