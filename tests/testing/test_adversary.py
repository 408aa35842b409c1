"""Hostile executions are legal, reach what they promise, and show what is wrong with a program."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
from nki.core.dtypes import float32
from nki.core.errors import ExecutionError
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN, Frame, Location
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.options import Options
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, Wait
from nki.target.load import load_target
from nki.testing.adversary import Policy, events, run_adversely

TRN2 = load_target("trn2")
SHAPE = (2, 4)
KINDS = [Policy(), Policy(in_flight=True), Policy("random", seed=1), Policy("random", seed=2, in_flight=True)]
KINDS += [
    Policy(kind, queue, in_flight=flies) for kind in ("late", "early") for queue in "ab" for flies in (True, False)
]


def copy(dst: View, src: View, line: int = 0) -> Issued:
    where = Location((Frame("k.py", "k", line),)) if line else UNKNOWN
    return Issued(nisa.dma_copy, _with(nisa.dma_copy, dst=dst, src=src), where, engine.dma)


def _with(instruction: Any, **given: Any) -> Any:
    defaults = {n: p.default for n, p in instruction.__signature__.parameters.items()}
    return instruction.arguments(**{**defaults, **given})


def random_syncs(random: Random, count: int) -> list[Sync]:
    """Waits for earlier instructions of other queues."""
    queues = [random.choice("abc") for _ in range(count)]
    given: dict[str, int] = {}
    syncs = []
    for queue in queues:
        waits = [
            Wait(other, random.randint(1, n)) for other, n in given.items() if other != queue and random.random() < 0.4
        ]
        syncs.append(Sync(queue, tuple(waits), True))
        given[queue] = given.get(queue, 0) + 1
    return syncs


@pytest.mark.parametrize("policy", KINDS, ids=str)
def test_every_policy_obeys_queues_and_waits(policy: Policy) -> None:
    for seed in range(30):
        syncs = random_syncs(Random(seed), 12)
        begun: list[int] = []
        done: dict[str, int] = {}
        ended: list[int] = []
        for position, starts in events([copy_of_nothing()] * 12, syncs, policy, seed):
            sync = syncs[position]
            if starts:
                assert all(done.get(queue, 0) >= count for queue, count in sync.waits)
                assert [p for p in range(position) if syncs[p].queue == sync.queue] == [
                    p for p in ended if syncs[p].queue == sync.queue
                ]
                begun.append(position)
            else:
                assert position in begun
                ended.append(position)
                done[sync.queue] = done.get(sync.queue, 0) + 1
        assert sorted(begun) == sorted(ended) == list(range(12))


def copy_of_nothing() -> Issued:
    tile = whole(Buffer(1, "t", MemoryRegion.sbuf, SHAPE, float32))
    return copy(tile, tile)


def test_late_and_early_queues() -> None:
    syncs = [Sync("a", (), True), Sync("b"), Sync("a"), Sync("c", (Wait("a", 1),)), Sync("b")]

    def order(policy: Policy) -> list[int]:
        return [position for position, starts in events([copy_of_nothing()] * 5, syncs, policy) if starts]

    assert order(Policy()) == [0, 1, 2, 3, 4]
    assert order(Policy("late", "a")) == [1, 4, 0, 3, 2]
    assert order(Policy("early", "c")) == [0, 3, 1, 2, 4]
    assert order(Policy("late", "b")) == [0, 2, 3, 1, 4]


def hbm(key: int, name: str) -> Buffer:
    return Buffer(key, name, MemoryRegion.shared_hbm, SHAPE, float32)


def through_a_tile(waits: tuple[Wait, ...], trips: int = 0) -> Program:
    """Input to a tile, tile to the output, on two queues."""
    given, out, tile = hbm(1, "given"), hbm(2, "out"), Buffer(3, "tile", MemoryRegion.sbuf, SHAPE, float32)
    items: list[Any] = [copy(whole(tile), whole(given), 7), copy(whole(out), whole(tile), 8)]
    syncs: list[Any] = [Sync("dma0", (), True), Sync("dma1", waits)]
    block = Block([out, tile], items, syncs)
    if trips:
        loop = ForLoop(0, trips, 1, VirtualRegister(0), Block([tile], items, syncs), UNKNOWN)
        block = Block([out], [loop], [None])
    return Program("k", "trn2", 0, 1, [given], [whole(out)], block, placement={3: (0, 64)})


def run(program: Program, policy: Policy) -> list[float]:
    given = np.arange(8, dtype=np.float32).reshape(SHAPE)
    (result,) = run_adversely([program], [given], TRN2, policy, Options())
    return list(result.reshape(-1))


HOSTILE = [Policy("late", "dma0"), Policy("early", "dma1"), Policy(in_flight=True)]


@pytest.mark.parametrize("policy", HOSTILE, ids=str)
@pytest.mark.parametrize("trips", [0, 1])
def test_a_missing_wait_shows(policy: Policy, trips: int) -> None:
    right, wrong = through_a_tile((Wait("dma0", 1),), trips), through_a_tile((), trips)
    assert run(right, policy) == run(right, Policy()) == run(wrong, Policy()) == list(range(8))
    assert run(wrong, policy) != list(range(8))


@pytest.mark.parametrize("policy", [Policy(), *HOSTILE], ids=str)
def test_a_wait_for_what_never_comes_names_both_lines(policy: Policy) -> None:
    with pytest.raises(ExecutionError) as caught:
        run(through_a_tile((Wait("dma0", 2),)), policy)
    assert caught.value.code == "schedule.stuck"
    assert "k.py:8" in str(caught.value) and "has ended" in str(caught.value)
    circle = through_a_tile((Wait("dma0", 1),))
    circle.body.sync = [Sync("dma0", (Wait("dma1", 1),), True), Sync("dma1", (Wait("dma0", 1),), True)]
    with pytest.raises(ExecutionError) as caught:
        run(circle, policy)
    assert "k.py:7" in str(caught.value) and "k.py:8" in str(caught.value)


def test_tensors_lie_where_they_were_placed() -> None:
    """A tensor that begins one element behind another one leaves its bytes there."""
    program = through_a_tile((Wait("dma0", 1),))
    given, tile = program.inputs[0], program.body.buffers[1]
    other = Buffer(4, "other", MemoryRegion.sbuf, SHAPE, float32)
    block = program.body
    block.buffers.append(other)
    block.items.insert(1, copy(whole(other), whole(given)))
    block.sync = [Sync("dma0"), Sync("dma0", (), True), Sync("dma1", (Wait("dma0", 1),))]
    program.placement = {tile.id: (0, 64), other.id: (0, 68)}
    assert run(program, Policy()) == [0, 0, 1, 2, 4, 4, 5, 6]
    program.placement = {tile.id: (0, 64), other.id: (0, 80)}
    assert run(program, Policy()) == list(range(8))
