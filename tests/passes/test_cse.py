"""What was computed before from the same bytes is read again; whatever may differ in any way is computed again."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.options import Options
from nki.passes import cse
from nki.passes.allocation import addresses
from nki.passes.analysis.free_bytes import FreeBytes
from nki.passes.context import Context
from nki.spec.instruction import REGISTRY
from nki.spec.program import Program
from nki.spec.verify_program import verify_program
from tests.passes.cse_kernels import GO, A, Change, Use, around, chain, scaled, states, tile
from tests.passes.cse_stays import STAY, between
from tests.passes.kernels import TRN2, passed, results
from tests.together import together


def count(program: Program) -> Counter[str]:
    return Counter(issued.instruction.name for issued in program.body.walk())


@pytest.mark.parametrize("name", GO)
def test_an_equal_result_is_read_again(name: str) -> None:
    change, wanted = GO[name]
    before, after = passed(around(change), [A], cse.PASS)
    assert count(before) - count(after) == Counter(wanted)
    assert count(after) - count(before) == Counter()
    used = {view.buffer.id for issued in after.body.walk() for _, view in issued.views()}
    assert len(list(after.body.all_buffers())) == len(list(before.body.all_buffers())) - sum(wanted.values())
    assert {b.id for b in after.body.all_buffers() if b.on_chip} <= used
    assert not list(verify_program(after, TRN2))
    assert results(before, [A]) == results(after, [A])


def with_bait(change: Change) -> Change:
    """There is one more constant than needed besides, so that the program is looked through at all."""

    def both(x: Any, y: Any, use: Use) -> None:
        GO["constants"][0](x, y, use)
        change(x, y, use)

    return both


@together("name", STAY)
def test_what_may_differ_is_computed_again(name: str) -> None:
    before, after = passed(around(STAY[name]), [A], cse.PASS)
    assert count(after) == count(before)
    before, after = passed(around(with_bait(STAY[name])), [A], cse.PASS)
    assert count(before) - count(after) == Counter(memset=1)


def test_memory_that_is_no_operand_may_be_any_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    change = with_bait(between(lambda x, y: nisa.reciprocal(tile(), x)))
    before, _ = passed(around(change), [A])
    monkeypatch.setattr(nisa.reciprocal, "_effects", ("fence",))
    assert count(before) - count(cse.run(before, Context(TRN2))) == Counter(memset=1)
    monkeypatch.undo()
    assert count(before) - count(cse.run(before, Context(TRN2))) == Counter(memset=1, tensor_tensor=1)


def test_another_engine_computes_again() -> None:
    """What the arguments leave open may have been decided in another way."""
    before, _ = passed(around(lambda x, y, use: (use(scaled(x)), use(scaled(x)))), [A])
    places = [n for n, issued in enumerate(before.body.walk()) if issued.instruction.name == "tensor_scalar"]
    assert count(before) - count(cse.run(before, Context(TRN2))) == Counter(tensor_scalar=1)
    before.body.items[places[1]] = before.body.items[places[1]]._replace(engine=nisa.engine.scalar)
    assert count(cse.run(before, Context(TRN2))) == count(before)


@pytest.mark.parametrize("name", ["local_gather", "nc_stream_shuffle", "dma_copy", "register_store", "set_rng_seed"])
def test_no_result_of_these_is_used_again(name: str) -> None:
    """They leave a part as it was, are done by DMA, read a register, or have no result."""
    assert cse._plan(REGISTRY[name]).result == -1
    assert cse._plan(REGISTRY["tensor_copy"]).result == 0


def test_an_output_stays() -> None:
    before, _ = passed(around(states), [A])
    made = [issued for issued in before.body.walk() if issued.instruction.name == "tensor_tensor"]
    before.outputs.append(made[2].arguments.dst)
    after = cse.run(before, Context(TRN2))
    assert made[2] in list(after.body.walk())
    assert count(before) - count(after) == Counter(tensor_tensor=2)


def test_nothing_is_done_where_rounding_is_random_or_addresses_are_settled() -> None:
    before, after = passed(around(chain), [A], cse.PASS)
    assert after is not before
    assert cse.run(before, Context(TRN2, Options(stochastic_rounding=True))) is before
    placed = addresses.PASS.run(before, Context(TRN2))
    assert cse.run(placed, Context(TRN2)) is placed


def test_orders_of_the_kernel_follow_their_instructions() -> None:
    def change(x: Any, y: Any, use: Use) -> None:
        states(x, y, use)
        with nl.no_reorder():
            use(x)
            use(y)
        done = use(x)
        nisa.memset(tile(), 7.0).depends_on(done)

    before, after = passed(around(change), [A], cse.PASS)
    assert (before.fences, before.edges) == ([(15, 17)], [(17, 18)])
    assert (after.fences, after.edges) == ([(12, 14)], [(14, 15)])
    assert results(before, [A]) == results(after, [A])


@pytest.mark.parametrize(("most", "merged"), [(4, 2), (5, 1)])
def test_a_result_waits_only_where_there_is_room(most: int, merged: int) -> None:
    """Tiles of 30,000 bytes: five of them are 70 % of SBUF, six are more than three quarters.

    The third result is needed right after the second, and can always be that one.
    """
    size = 7500
    tiles = nl.ndarray

    def kernel(a: Any) -> Any:
        x, total = (tiles((8, size), nl.float32, buffer=nl.sbuf) for _ in "xt")
        nisa.dma_copy(dst=x, src=a)
        nisa.memset(total, 0.0)

        def add_scaled() -> None:
            p = tiles((8, size), nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(p, x, nl.multiply, 2.0)
            nisa.tensor_tensor(total, total, p, nl.add)

        add_scaled()
        others = [tiles((8, size), nl.float32, buffer=nl.sbuf) for _ in range(most - 2)]
        for number, other in enumerate(others):
            nisa.memset(other, float(number))
        for other in others:
            nisa.tensor_tensor(total, total, other, nl.add)
        add_scaled()
        add_scaled()
        out = nl.ndarray((8, size), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=total)
        return out

    array = np.ones((8, size), np.float32)
    before, after = passed(kernel, [array], cse.PASS)
    assert count(before) - count(after) == Counter(tensor_scalar=merged)
    assert results(before, [array]) == results(after, [array])


def test_room_is_counted_position_by_position() -> None:
    """Against a plain array, with spans from nothing to thousands of positions."""
    random, positions, limit = Random(1), 3000, int(0.75 * TRN2.sbuf.usable_bytes_per_partition)
    room, plain = FreeBytes(positions, (), TRN2, 0.75), np.zeros(positions, np.int64)
    taken = []
    for _ in range(1500):
        first = random.choice([random.randrange(positions), 64 * random.randrange(40)])
        after = min(positions, first + random.choice([0, 1, 5, 64, 100, 128, 640, 1000, 2999]))
        size = random.choice([4, 4000, 40_000])
        fits = first >= after or int(plain[first:after].max()) + size <= limit
        assert room.take(first, after, size) == fits
        if fits:
            plain[first:after] += size
        taken.append(fits)
    assert 200 < sum(taken) < 1300
