"""Unrolled loops compute what the loops computed, with tensors of their own for trips that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.compiler import CompileConfig
from nki.passes import unroll
from nki.spec.program import ForLoop
from tests.passes.kernels import passed, results, shape
from tests.together import together

PREFETCH = CompileConfig(prefetch_auto=True)
A = np.random.default_rng(2).standard_normal((12, 8, 16)).astype(np.float32)
BODY = ["dma_copy", "tensor_scalar", "dma_copy"]


def kernel_of(loops: Callable[[Any, Any, Callable[[Any], None]], Any]) -> Callable[[Any], Any]:
    """A kernel whose output begins as a copy of the input; `loops` gets both, and a body for an index."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((12, 8, 16), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)

        def body(i: Any) -> None:
            tile = nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a.select(0, i))
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            nisa.dma_copy(dst=out.select(0, i), src=tile)

        loops(a, out, body)
        return out

    return kernel


def over(lower: int, upper: int, step: int = 1) -> Callable[[Any], Any]:
    return kernel_of(lambda a, out, body: nl.fori_loop(lower, upper, body, step))


def both(kernel: Callable[[Any], Any], ring: int = 4) -> tuple[Any, Any]:
    """The program before and after; they compute the same."""
    before, after = passed(kernel, [A], unroll.PASS, config=PREFETCH, ring=ring)
    assert results(before, [A]) == results(after, [A])
    return before, after


@together("ring", [2, 3, 4, 5])
@pytest.mark.parametrize("bounds", [(0, 12, 1), (0, 8, 1), (1, 12, 1), (0, 7, 1), (2, 12, 3), (0, 1, 1), (5, 11, 2)])
def test_any_bounds(bounds: tuple[int, int, int], ring: int) -> None:
    """With a remainder or without; what is left of the loop and what follows it makes all trips."""
    _, after = both(over(*bounds), ring)
    trips = made = 0
    for item in after.body.items[1:]:
        if isinstance(item, ForLoop):
            copies, rest = divmod(len(item.body.items), len(BODY))
            assert rest == 0 and copies == ring and len(item.body.buffers) == copies
            trips += copies * len(range(item.lower, item.upper, item.step))
            assert item.step == ring * bounds[2]
        else:
            made += 1
    assert trips + made // len(BODY) == len(range(*bounds))


@pytest.mark.parametrize("ring", [1, 0])
def test_a_ring_of_one_buffer_is_none(ring: int) -> None:
    before, after = passed(over(0, 12), [A], unroll.PASS, config=PREFETCH, ring=ring)
    assert after is before


def test_only_inner_loops_are_unrolled() -> None:
    def loops(a: Any, out: Any, body: Any) -> None:
        nl.fori_loop(0, 3, lambda i: nl.fori_loop(0, 9, body))

    _, after = both(kernel_of(loops))
    assert shape(after.body) == ["dma_copy", [(0, 3, 1), [(0, 8, 4), *BODY * 4], *BODY]]


def test_an_outer_index_stays() -> None:
    """Inner trips use the outer index as well."""

    def loops(a: Any, out: Any, body: Any) -> None:
        def outer(i: Any) -> None:
            def inner(j: Any) -> None:
                tile = nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=a.select(0, j))
                nisa.dma_copy(dst=out.select(0, i), src=tile)

            nl.fori_loop(0, 5, inner)

        nl.fori_loop(0, 12, outer)

    both(kernel_of(loops), 2)


def test_sums_over_trips_keep_their_order() -> None:
    """A tensor from outside, in SBUF and in PSUM, takes something of every trip."""

    def loops(a: Any, out: Any, body: Any) -> None:
        total, last = (nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf) for _ in "ab")
        psum = nl.ndarray((8, 16), nl.float32, buffer=nl.psum)
        nisa.memset(total, 0.0)

        def trip(i: Any) -> None:
            tile = nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a.select(0, i))
            nisa.tensor_tensor(total, total, tile, nl.subtract)
            nisa.tensor_scalar(total, total, nl.multiply, 0.5)
            nisa.nc_matmul(psum, tile[:, 0:8], tile)

        nl.fori_loop(0, 11, trip)
        nisa.tensor_copy(last, psum)
        nisa.dma_copy(dst=out[0], src=total)
        nisa.dma_copy(dst=out[1], src=last)

    _, after = both(kernel_of(loops))
    assert any(isinstance(item, ForLoop) and len(item.body.items) == 16 for item in after.body.items)


def test_registers_that_go_from_trip_to_trip_are_shared_and_others_are_not() -> None:
    def loops(a: Any, out: Any, body: Any) -> None:
        place = nisa.register_alloc(11)

        def trip(i: Any) -> None:
            own = nisa.register_alloc()
            tile = nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a.select(0, i))
            nisa.register_move(own, place)
            nisa.dma_copy(dst=out.select(0, own), src=tile)
            nisa.register_move(place, nisa.NkiScalar(place.record) - 1)

        nl.fori_loop(0, 10, trip)

    before, after = both(kernel_of(loops))

    def moved(program: Any) -> set[int]:
        loop = next(item for item in program.body.items if isinstance(item, ForLoop))
        return {i.arguments.dst.id for i in loop.body.walk() if i.instruction.name == "register_move"}

    assert len(moved(before)) == 2
    assert len(moved(after)) == 4 + 1


def test_new_registers_are_none_that_count_trips() -> None:
    """The index of the second loop is the last register that there is, and no instruction names it."""

    def loops(a: Any, out: Any, body: Any) -> None:
        def trip(i: Any) -> None:
            own = nisa.register_alloc(3)
            nisa.dma_copy(dst=out.select(0, own), src=a[5])

        nl.fori_loop(0, 8, trip)
        nl.fori_loop(0, nisa.register_alloc(2), lambda i: nisa.dma_copy(dst=out[7], src=a[6]))

    _, after = both(kernel_of(loops))
    first, second = (item for item in after.body.items if isinstance(item, ForLoop))
    made = {i.arguments.dst.id for i in first.body.walk() if i.instruction.name == "register_move"}
    assert len(made) == 4
    assert not made & {first.index.id, second.index.id, second.upper.id}


def test_an_index_that_is_needed_as_a_number_keeps_its_loop() -> None:
    def loops(a: Any, out: Any, body: Any) -> None:
        numbers, tile = (nl.ndarray((1, 12), t, buffer=nl.sbuf) for t in (nl.int32, nl.float32))
        nisa.memset(numbers, 0)
        for lower, upper in ((0, 9), (9, 12)):
            nl.fori_loop(lower, upper, lambda i: nisa.register_store(numbers[0:1, 0:1], i * 2))
        nisa.tensor_copy(tile, numbers)
        nisa.dma_copy(dst=out[0][0:1, 0:12], src=tile)

    before, after = both(kernel_of(loops))
    assert shape(after.body) == shape(before.body)


@pytest.mark.parametrize("trips", [3, 10])
def test_what_is_used_behind_the_loop_keeps_its_last_value(trips: int) -> None:
    """The index keeps its loop; a register of the body is one register for all trips."""

    def loops(a: Any, out: Any, body: Any) -> None:
        kept: list[Any] = []

        def trip(i: Any) -> None:
            kept.append(i)
            body(i)

        def other(i: Any) -> None:
            own = nisa.register_alloc(0)
            kept.append(own)
            nisa.register_load(own, numbers.select(1, i))
            nisa.dma_copy(dst=out[11], src=a.select(0, own))

        numbers = nl.ndarray((1, 12), nl.int32, buffer=nl.sbuf)
        nisa.iota(numbers, [[1, 12]])
        nl.fori_loop(0, trips, trip)
        nl.fori_loop(0, trips, other)
        for place, register in enumerate(kept[:2]):
            tile = nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a.select(0, register))
            nisa.dma_copy(dst=out[9 + place], src=tile)

    before, after = both(kernel_of(loops))
    assert after.body.items[2] == before.body.items[2]


def test_a_register_as_bound_keeps_its_loop() -> None:
    kernel = kernel_of(lambda a, out, body: nl.fori_loop(0, nisa.register_alloc(7), body))
    before, after = both(kernel)
    assert shape(after.body) == shape(before.body)


def test_edges_and_ordered_regions_are_in_every_copy() -> None:
    def loops(a: Any, out: Any, body: Any) -> None:
        def trip(i: Any) -> None:
            tile = nl.ndarray((8, 16), nl.float32, buffer=nl.sbuf)
            first = nisa.dma_copy(dst=tile, src=a.select(0, i))
            with nl.no_reorder():
                nisa.tensor_scalar(tile, tile, nl.add, 1.0)
                nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
            nisa.dma_copy(dst=out.select(0, i), src=tile).depends_on(first)

        nl.fori_loop(0, 7, trip)
        last = nisa.dma_copy(dst=out[11], src=a[0])
        nisa.dma_copy(dst=out[10], src=a[0]).depends_on(last)

    before, after = both(kernel_of(loops), 3)
    assert (before.edges, before.fences) == ([(1, 4), (5, 6)], [(2, 4)])
    starts = [1 + 4 * copy for copy in range(4)]  # three copies in the loop, and the trip that is left
    assert after.edges == [*((start, start + 3) for start in starts), (17, 18)]
    assert after.fences == [(start + 1, start + 3) for start in starts]


def test_while_loops_stay() -> None:
    def loops(a: Any, out: Any, body: Any) -> None:
        def trip(count: Any) -> Any:
            body(count)
            following = nisa.register_alloc()
            nisa.register_move(following, count - 1)
            return following

        nl.while_loop(nisa.register_alloc(3), trip)

    before, after = both(kernel_of(loops))
    assert shape(after.body) == shape(before.body)
