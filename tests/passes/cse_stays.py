"""Kernels that compute something twice, where the results may differ, or where both have to be computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki.isa as nisa
import nki.language as nl
from tests.passes.cse_kernels import Change, Use, filled, loaded, on_scalar, product, scaled, tile, twice


def between(what: Callable[[Any, Any], Any], make: Callable[[Any, Any], Any] = product) -> Change:
    """The same twice, and something in between."""

    def change(x: Any, y: Any, use: Use) -> None:
        use(make(x, y))
        what(x, y)
        use(make(x, y))

    return change


def differing(first: Callable[[Any, Any], Any], second: Callable[[Any, Any], Any]) -> Change:
    return lambda x, y, use: (use(first(x, y)), use(second(x, y)))


def again_in(place: str) -> Change:
    """A product, and one in a loop behind it; or one in each of two loops."""

    def change(x: Any, y: Any, use: Use) -> None:
        def trip(i: Any) -> None:
            use(product(x, y))

        if place == "a loop":
            trip(0)
        else:
            nl.fori_loop(0, 2, trip)
        nl.fori_loop(0, 2, trip)

    return change


def outside(x: Any, y: Any, use: Use) -> None:
    """Computed in a loop, into tensors from outside."""
    first, second = tile(), tile()
    nl.fori_loop(0, 2, lambda i: (product(x, y, first), use(first), product(x, y, second), use(second), None)[-1])


def outside_first(x: Any, y: Any, use: Use) -> None:
    """Only the first of two results in a loop is a tensor from outside."""
    first = tile()
    nl.fori_loop(0, 2, lambda i: (product(x, y, first), use(first), use(product(x, y)), None)[-1])


def elsewhere(x: Any, y: Any) -> Any:
    """`product`, written once more."""
    p = tile()
    nisa.tensor_tensor(p, x, y, nl.multiply)
    return p


def stored(which: int) -> Change:
    """One of the results goes to device memory as well."""

    def change(x: Any, y: Any, use: Use) -> None:
        for turn in range(2):
            made = product(x, y)
            use(made)
            if turn == which:
                nisa.dma_copy(dst=tile(buffer=nl.private_hbm), src=made)

    return change


def rewritten_later(which: int) -> Change:
    """One of the results changes after it was used."""

    def change(x: Any, y: Any, use: Use) -> None:
        made = [product(x, y), product(x, y)]
        use(made[which])
        scaled(made[which], 3.0, into=made[which])
        use(made[0])
        use(made[1])

    return change


def unread(which: int) -> Change:
    def change(x: Any, y: Any, use: Use) -> None:
        made = [product(x, y), product(x, y)]
        use(made[1 - which])

    return change


def read_before(x: Any, y: Any, use: Use) -> None:
    """Somebody reads the second result before it is there."""
    late = tile()
    use(product(x, y))
    use(late)
    use(product(x, y, late))


def in_order(which: int) -> Change:
    def change(x: Any, y: Any, use: Use) -> None:
        for number in range(2):
            if number == which:
                with nl.no_reorder():
                    p = product(x, y)
                    use(p)
            else:
                use(product(x, y))

    return change


def on_an_edge(which: int) -> Change:
    """One of the two products begins or ends an order that the kernel asks for."""

    def change(x: Any, y: Any, use: Use) -> None:
        handles, tiles = [], [tile(), tile()]
        for p in tiles:
            handles.append(nisa.tensor_tensor(p, x, y, nl.multiply))
            use(p)
        other = nisa.memset(tile(), 7.0)
        if which:
            other.depends_on(handles[1])
        else:
            other.depends_on(handles[0])

    return change


def through_a_register(x: Any, y: Any, use: Use) -> None:
    """One register, and another number in it."""
    number = nisa.register_alloc(3)
    for _ in range(2):
        p = nl.ndarray((8, 8), nl.int32, buffer=nl.sbuf)
        nisa.iota(p, [[1, 8]], offset=number)
        use(p)
        nisa.register_move(number, 5)


def at_one_register(x: Any, y: Any, use: Use) -> None:
    """The address is the same here, but registers are not followed."""
    number = nisa.register_alloc(3)
    for _ in range(2):
        p = tile((8, 1))
        nisa.tensor_copy(p, x.ap([[8, 8], [1, 1]], scalar_offset=number, indirect_dim=1))
        use(nl.broadcast_to(p, (8, 8)))


def in_place(x: Any, y: Any) -> Any:
    p = tile()
    nisa.tensor_tensor(p, p, y, nl.multiply)
    return p


def where(x: Any, y: Any) -> Any:
    """Some elements of the result stay as they were."""
    p = tile()
    nisa.tensor_copy_predicated(p, x, y.view(nl.uint32))
    return p


def half(x: Any, y: Any) -> Any:
    p = filled(1.0)
    nisa.tensor_copy(p[:, 0:4], x[:, 0:4])
    return p


def part(x: Any, y: Any) -> Any:
    """Only a part of the result is ever written."""
    p = tile((8, 9))
    nisa.tensor_copy(p[:, 0:8], x)
    return p[:, 0:8]


def turned(x: Any, y: Any) -> Any:
    """All of it is written, its rows in another order than they lie."""
    p = tile((8, 8))
    nisa.tensor_copy(p.ap([[8, 8], [1, 4], [4, 2]]), x.reshape((8, 4, 2)))
    return p


def copied(x: Any, engine: Any) -> Any:
    p = tile()
    nisa.dma_copy(dst=p, src=x, engine=engine, dge_mode=nisa.dge_mode.hwdge)
    return p


def random_bits(x: Any, y: Any) -> Any:
    p = nl.ndarray((8, 8), nl.uint32, buffer=nl.sbuf)
    nisa.rng(p)
    return p


def with_sum(x: Any, y: Any) -> Any:
    p, s = tile(), tile((8, 1))
    nisa.activation_reduce(dst=p, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=s)
    return p


def two_results(x: Any, y: Any) -> Any:
    p, places = tile(), nl.ndarray((8, 8), nl.uint32, buffer=nl.sbuf)
    nisa.nc_match_replace8(dst=p, data=x, vals=y, imm=1.0, dst_idx=places)
    return p


def matrix_product(x: Any, y: Any) -> Any:
    wide = tile(buffer=nl.psum)
    nisa.nc_matmul(wide, x, y)
    return wide


def transposed(x: Any, y: Any) -> Any:
    p = tile(buffer=nl.psum)
    nisa.nc_transpose(p, x, engine=nisa.engine.tensor)
    return p


def to_psum(x: Any, y: Any) -> Any:
    return product(x, y, tile(buffer=nl.psum))


GPSIMD, VECTOR = nisa.engine.gpsimd, nisa.engine.vector
STAY: dict[str, Change] = {
    "an input is written": between(lambda x, y: scaled(y, into=y)),
    "a part of an input is written": between(lambda x, y: nisa.memset(y[:, 3:4], 5.0)),
    "an input is loaded again": between(lambda x, y: nisa.dma_copy(dst=x, src=y)),
    "a loop writes an input": between(lambda x, y: nl.fori_loop(0, 2, lambda i: (scaled(y, into=y), None)[1])),
    "another operator": differing(product, lambda x, y: product(x, y, op=nl.add)),
    "another line": differing(product, elsewhere),
    "the first is stored": stored(0),
    "the second is stored": stored(1),
    "another number": differing(lambda x, y: scaled(x), lambda x, y: scaled(x, 3.0)),
    "another zero": differing(lambda x, y: filled(0.0), lambda x, y: filled(-0.0)),
    "another input": differing(product, lambda x, y: product(x, x)),
    "another part of an input": differing(on_scalar, lambda x, y: on_scalar(x, y[:, 1:2])),
    "another engine": differing(product, lambda x, y: product(x, y, engine=GPSIMD)),
    "GpSimd": twice(lambda x, y: product(x, y, engine=GPSIMD)),
    "a load": twice(lambda x, y: loaded(x)),
    "a copy by DMA": twice(lambda x, y: copied(x, nisa.engine.unknown)),
    "a copy by DMA that Scalar starts": twice(lambda x, y: copied(x, nisa.engine.scalar)),
    "a matrix product": twice(matrix_product),
    "a transposition": twice(transposed),
    "a result in PSUM": twice(to_psum),
    "random bits": twice(random_bits),
    "accumulator registers": twice(with_sum),
    "two results": twice(two_results),
    "a register": through_a_register,
    "an address in a register": at_one_register,
    "it reads what it writes": twice(in_place),
    "some of it stays": twice(where),
    "a part of the result": twice(part),
    "a result in another order": twice(turned),
    "two writes": twice(half),
    "a result at an address": twice(lambda x, y: product(x, y, tile(address=(0, 4096)))),
    "an input at an address": lambda x, y, use: twice(product)(loaded(x, address=(0, 4096)), y, use),
    "the first changes later": rewritten_later(0),
    "the second changes later": rewritten_later(1),
    "nobody reads the first": unread(0),
    "nobody reads the second": unread(1),
    "read before": read_before,
    "again in a loop": again_in("a loop"),
    "in two loops": again_in("two loops"),
    "tensors from outside the loop": outside,
    "a tensor from outside and one of the loop": outside_first,
    "the first in order": in_order(0),
    "the second in order": in_order(1),
    "the first on an edge": on_an_edge(0),
    "the second on an edge": on_an_edge(1),
}  # fmt: skip
