"""Kernels that compute something twice, where the first result serves for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl

A = np.arange(64, dtype=np.float32).reshape(8, 8) / 7
Use = Callable[[Any], Any]
Change = Callable[[Any, Any, Use], Any]


def tile(shape: tuple[int, ...] = (8, 8), buffer: Any = nl.sbuf, **place: Any) -> Any:
    return nl.ndarray(shape, nl.float32, buffer=buffer, **place)


def loaded(a: Any, **place: Any) -> Any:
    t = tile(**place)
    nisa.dma_copy(dst=t, src=a)
    return t


def around(change: Change) -> Callable[[Any], Any]:
    """A kernel that loads two tiles and stores a sum; `change` gets both, and what adds a tile to the sum."""

    def kernel(a: Any) -> Any:
        x, y, total = loaded(a), loaded(a), tile()
        nisa.memset(total, 1.0)
        change(x, y, lambda p: nisa.tensor_tensor(total, total, p, nl.add))
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


def product(x: Any, y: Any, into: Any = None, engine: Any = nisa.engine.unknown, op: Any = nl.multiply) -> Any:
    p = tile() if into is None else into
    nisa.tensor_tensor(p, x, y, op, engine=engine)
    return p


def scaled(x: Any, factor: float = 2.0, into: Any = None) -> Any:
    p = tile() if into is None else into
    nisa.tensor_scalar(p, x, nl.multiply, factor)
    return p


def filled(value: float, into: Any = None) -> Any:
    p = tile() if into is None else into
    nisa.memset(p, value)
    return p


def twice(make: Callable[[Any, Any], Any]) -> Change:
    """What is made from the inputs is made and used two times."""

    def change(x: Any, y: Any, use: Use) -> None:
        for _ in range(2):
            use(make(x, y))

    return change


def states(x: Any, y: Any, use: Use) -> None:
    """As in the second version of the Mamba tutorial: one product inside a loop over its users."""
    for state in range(4):
        use(scaled(product(x, y), float(state)))


def chain(x: Any, y: Any, use: Use) -> None:
    for _ in range(3):
        use(scaled(scaled(product(x, y)), 3.0))


def on_scalar(x: Any, y: Any) -> Any:
    p = tile()
    nisa.activation(dst=p, op=nl.exp, data=x, scale=y[:, 0:1])
    return p


def counted(x: Any, y: Any) -> Any:
    p = nl.ndarray((8, 8), nl.int32, buffer=nl.sbuf)
    nisa.iota(p, [[1, 8]], offset=0)
    return p


def body(x: Any, y: Any, use: Use) -> None:
    nl.fori_loop(0, 3, lambda i: twice(product)(x, y, use))


def over_a_loop(x: Any, y: Any, use: Use) -> None:
    """The loop between them reads, and writes something else; the one after them reads both results."""
    first, other = product(x, y), tile()
    nl.fori_loop(0, 2, lambda i: use(product(x, first, into=other)))
    second = product(x, y)
    nl.fori_loop(0, 2, lambda i: (use(first), use(second), None)[-1])


def from_psum(x: Any, y: Any, use: Use) -> None:
    wide = tile(buffer=nl.psum)
    nisa.nc_matmul(wide, x, y)
    use(scaled(wide))
    use(scaled(wide))


def as_index(x: Any, y: Any, use: Use) -> None:
    """A result that is the index of a dynamic address; what is read there is not followed."""
    for _ in range(2):
        index = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.memset(index, 2)
        column = tile((8, 1))
        nisa.tensor_copy(column, x.ap([[8, 8], [1, 1]], scalar_offset=index, indirect_dim=1))
        use(nl.broadcast_to(column, (8, 8)))


GO: dict[str, tuple[Change, dict[str, int]]] = {
    "a product for every state": (states, {"tensor_tensor": 3}),
    "a chain": (chain, {"tensor_tensor": 2, "tensor_scalar": 4}),
    "on the Scalar engine": (twice(on_scalar), {"activation": 1}),
    "constants": (twice(lambda x, y: filled(0.5)), {"memset": 1}),
    "a count on GpSimd": (twice(counted), {"iota": 1}),
    "in the body of a loop": (body, {"tensor_tensor": 1}),
    "on both sides of a loop": (over_a_loop, {"tensor_tensor": 1}),
    "from PSUM": (from_psum, {"tensor_scalar": 1}),
    "an index": (as_index, {"memset": 1}),
}
