"""A step of many ranks: by hand, and against brute force over all ranks; classes, groups, stragglers and bubbles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.core.errors import LaunchError
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.spec.program import ForLoop
from nki.target.load import load_target
from nki.timing.hardware import hardware_of
from nki.timing.ranks.groups import group_of_each
from nki.timing.ranks.step import Message, RankProgram, Run, Step, step_of
from nki.timing.ranks.timeline import StepTimeline, step_timeline
from nki.topology import collective_time, load_instance
from tests.timing.ranks_reference import LATENCY, NBYTES, Item, brute_force, sketched
from tests.timing.support import program

TRN2 = load_target("trn2")
INSTANCE = load_instance("trn2")
SIGNAL = float(TRN2.timing["semaphore_ns"])


def all_reduce_ns(lists: Sequence[Sequence[int]], nbytes: int = NBYTES) -> float:
    return collective_time("all_reduce", nbytes, lists, INSTANCE, TRN2).ns


def run(items: Sequence[Item], rank: int = 0) -> RankProgram:
    return RankProgram(rank, (Run((sketched(items),), "toy"),))


def timed(step: Step, apart: bool = False) -> StepTimeline:
    return step_timeline(step, INSTANCE, TRN2, apart=apart)


def reducing(ns: float, after: float, group: tuple[int, ...]) -> list[Item]:
    """Work, a collective of it, work beside it, and work on what it brings."""
    return [
        Item("vector", ns),
        Item("dma0", 0.0, group, (0,)),
        Item("scalar", 10_000.0),
        Item("vector", after, (), (1,)),
    ]


def test_two_ranks_by_hand() -> None:
    """Both are ready after 1000 ns and a signal, and go on when data are there and seen."""
    found = timed(step_of([run(reducing(1000.0, 500.0, (0, 1)))], 2))
    (only,) = found.classes
    (made,) = only.communications
    assert only.ranks == (0, 1)
    assert made.ready == made.start == 1000 + SIGNAL
    assert made.end == pytest.approx(1000 + SIGNAL + all_reduce_ns([[0, 1]]))
    assert found.makespan == pytest.approx(max(10_000, made.end + LATENCY + 500))


def test_a_straggler_by_hand() -> None:
    """Rank 3 takes twice as long; its group waits for it, other groups do not."""
    found = timed(step_of([run(reducing(1000.0, 500.0, (0, 1, 2, 3)))], 64, {3: 2.0}))
    assert [each.ranks for each in found.classes] == [(0, 1, 2), (3,), tuple(range(4, 64))]
    waiting, late, others = (each.communications[0] for each in found.classes)
    assert waiting.ready == others.ready == others.start == 1000 + SIGNAL
    assert late.ready == late.start == waiting.start == 2 * (1000 + SIGNAL)
    assert waiting.last == late.last == 1
    lengths = [each.end - each.start for each in (waiting, late, others)]
    assert lengths == pytest.approx([all_reduce_ns([[0, 1, 2, 3]])] * 3)
    assert found.makespan == 20_000  # the slow rank's work on Scalar


def test_the_path_goes_through_the_rank_that_came_last() -> None:
    items = [Item("vector", 1000.0), Item("dma0", 0.0, (0, 1), (0,)), Item("vector", 30_000.0, (), (1,))]
    found = timed(step_of([run(items), run([Item("vector", 9000.0), *items[1:2], Item("vector", 10.0)], 1)], 2))
    first, moved, last = found.path
    assert (first.number, first.start, first.end, first.call) == (1, 0.0, 9000 + SIGNAL, None)
    assert moved.call is not None
    assert moved.end - moved.start == pytest.approx(all_reduce_ns([[0, 1]]))
    assert (last.number, last.end, last.call) == (0, found.makespan, None)


QUEUES = ("vector", "scalar", "sync", "dma0", "dma1")
MESHES: tuple[Callable[[int], tuple[int, ...]], ...] = (
    lambda rank: (rank // 2 * 2, rank // 2 * 2 + 1),
    lambda rank: tuple(range(rank % 2, 8, 2)),
    lambda rank: tuple(range(8)),
)
"""Groups of eight ranks along the dimensions of a mesh, and all of them."""


@st.composite
def programs(draw: st.DrawFn) -> list[list[Item]]:
    """One program for eight ranks, each with its own groups."""
    shape: list[tuple[str, float, int, tuple[int, ...]]] = []
    for number in range(draw(st.integers(1, 12))):
        queue = draw(st.sampled_from(QUEUES))
        after = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        mesh = draw(st.integers(0, 2)) if queue.startswith("dma") else -1
        shape.append((queue, float(draw(st.integers(1, 20_000))), mesh, tuple(sorted(after))))
    return [
        [
            Item(queue, ns if mesh < 0 else 0.0, MESHES[mesh](rank) if mesh >= 0 else (), after)
            for queue, ns, mesh, after in shape
        ]
        for rank in range(8)
    ]


SLOW = st.dictionaries(st.integers(0, 7), st.sampled_from([0.5, 1.25, 3.0]), max_size=3)


@settings(deadline=None, max_examples=20)
@given(programs(), SLOW)
def test_classes_are_brute_force_over_all_ranks(ranks: list[list[Item]], slow: dict[int, float]) -> None:
    """One of eight ranks is given; groups of the others follow from its own."""
    lists = [dict.fromkeys(of(rank) for rank in range(8)) for of in MESHES]
    times = {group: all_reduce_ns(list(groups)) for groups in lists for group in groups}
    step = step_of([run(ranks[0])], 8, slow)
    found = timed(step)
    assert timed(step, apart=True).makespan == pytest.approx(found.makespan)
    expected = brute_force(ranks, slow, times, TRN2)
    for rank in range(8):
        mine = found.classes[found.of[rank]]
        assert mine.end == pytest.approx(expected[rank].end, rel=1e-9)
        ends = {made.call[1][2]: (made.ready, made.end) for made in mine.communications}
        for at, item in enumerate(ranks[rank]):
            if item.group:
                assert ends[at] == pytest.approx((expected[rank].ready[at], expected[rank].ends[at]), rel=1e-9)
    _check_path(found)


def _check_path(found: StepTimeline) -> None:
    """Without gaps from the start to the end, and collectives as long as their data move."""
    at = 0.0
    for piece in found.path:
        assert piece.start == pytest.approx(at)
        at = piece.end
        if piece.call is not None:
            made = next(each for each in found.classes[piece.number].communications if each.call == piece.call)
            assert (piece.start, piece.end) == pytest.approx((made.start, made.end))
    assert at == pytest.approx(found.makespan)


def test_a_loop_meets_in_every_trip() -> None:
    """A loop is a barrier before, between and after its trips."""
    body = sketched(reducing(1000.0, 500.0, (0, 1))[:2]).body
    looped = program(ForLoop(0, 3, 1, VirtualRegister(0), body, UNKNOWN))
    found = timed(step_of([RankProgram(0, (Run((looped,), "loop"),))], 2, {1: 1.5}))
    trip = 1.5 * (1000 + SIGNAL) + all_reduce_ns([[0, 1]]) + 1.5 * LATENCY
    assert len(found.classes[0].communications) == 3
    assert found.makespan == pytest.approx(3 * trip + 4 * 1.5 * hardware_of(TRN2).barrier)


def test_each_core_meets_the_same_core_of_other_ranks() -> None:
    """The calls of the two cores have nothing to do with each other."""
    work = (1000.0, 3000.0)
    cores = [sketched([Item("vector", ns), Item("dma0", 0.0, (0, 1), (0,))]) for ns in work]
    found = timed(step_of([RankProgram(0, (Run(tuple(cores), "toy"),))], 2, {1: 2.0}))
    for each in found.classes:
        assert [made.ready for made in each.communications] == pytest.approx([each.slow * (ns + SIGNAL) for ns in work])
        assert [made.start for made in each.communications] == pytest.approx([2 * (ns + SIGNAL) for ns in work])
    assert found.makespan == pytest.approx(2 * (3000 + SIGNAL) + all_reduce_ns([[0, 1]]) + 2 * LATENCY)


def pipelined(stages: int, batches: int, ns: float) -> list[RankProgram]:
    """Stages of equal work that hand each batch on."""
    work = sketched([Item("vector", ns)])
    found = []
    for stage in range(stages):
        tasks: list[Run | Message] = []
        for _ in range(batches):
            after = ()
            if stage:
                tasks.append(Message("receive", NBYTES, (stage - 1, stage), "recv"))
                after = (len(tasks) - 1,)
            tasks.append(Run((work,), "stage", after))
            if stage < stages - 1:
                tasks.append(Message("send", NBYTES, (stage, stage + 1), "send", (len(tasks) - 1,)))
        found.append(RankProgram(stage, tuple(tasks)))
    return found


def test_a_pipeline_has_its_bubbles() -> None:
    """The last stage begins after the work and the messages of all stages before it, and is never idle then."""
    stages, batches, ns = 4, 5, 50_000.0
    hop = collective_time("permute", NBYTES, [[0, 1]], INSTANCE, TRN2).ns
    found = timed(step_of(pipelined(stages, batches, ns), stages))
    first = (stages - 1) * (ns + hop)
    assert found.classes[3].runs[0].start == pytest.approx(first)
    assert found.makespan == pytest.approx(first + batches * ns)
    assert found.classes[0].end == pytest.approx(batches * ns + hop)  # its last message
    on_path = [piece.number for piece in found.path if piece.call is None]
    assert on_path == sorted(on_path)
    assert len(on_path) == stages + batches - 1


def test_a_partner_that_does_not_exist_is_refused() -> None:
    """Rank 5 sends to 6; so the last rank, which does the same, would send to one after it."""
    with pytest.raises(LaunchError) as refused:
        timed(step_of([RankProgram(5, (Message("send", NBYTES, (5, 6), "send"),))], 8))
    assert refused.value.code == "step.groups"


def test_four_thousand_ranks_are_as_many_classes_as_differ() -> None:
    items = [*reducing(1000.0, 500.0, tuple(range(64))), Item("dma1", 0.0, tuple(range(0, 4096, 64)), (3,))]
    found = timed(step_of([run(items)], 4096, {70: 1.5}))
    assert [len(each.ranks) for each in found.classes] == [63 * 63, 63, 63, 1]  # others, its column, its row, itself
    assert found.classes[found.of[70]].ranks == (70,)
    assert found.classes[found.of[64]].ranks == tuple(rank for rank in range(64, 128) if rank != 70)


@pytest.mark.parametrize(
    ("named", "ranks", "own", "other"),
    [
        ([(0, 1, 2, 3)], 8, (0, 1, 2, 3), (4, 5, 6, 7)),
        ([(0, 2, 4, 6)], 16, (0, 2, 4, 6), (9, 11, 13, 15)),
        ([(5, 7)], 8, (5, 7), (0, 2)),
        ([(0, 1, 4, 5)], 16, (0, 1, 4, 5), (10, 11, 14, 15)),  # two dimensions of a mesh, with one between
        ([(3, 2, 1, 0)], 8, (3, 2, 1, 0), (7, 6, 5, 4)),  # groups keep their order
        ([(0, 3), (1, 2)], 4, (0, 3), (1, 2)),  # all are named
    ],
)
def test_groups_of_a_mesh(
    named: list[tuple[int, ...]], ranks: int, own: tuple[int, ...], other: tuple[int, ...]
) -> None:
    found = group_of_each(tuple(named), ranks, False)
    assert found[own[0]] == own
    assert found[other[0]] == other
    assert all(rank in found[rank] for rank in range(ranks))


def test_what_does_not_fit_together_is_refused() -> None:
    meets = [Item("dma0", 0.0, (0, 1, 2))]
    with pytest.raises(LaunchError) as refused:
        timed(step_of([run(meets)], 4))
    assert refused.value.code == "step.groups"
    with pytest.raises(LaunchError) as refused:
        timed(step_of([run([Item("dma0", 0.0, (0, 1))]), run([Item("vector", 5.0)], 1)], 2))
    assert refused.value.code == "step.mismatch"
    assert "rank 1, which it meets there, never does" in refused.value.message
    pair = [Message("all_reduce", 64, (0, 1), "a"), Message("all_reduce", 64, (0, 1, 2, 3), "b", (0,))]
    turned = [Message("all_reduce", 64, (0, 1, 2, 3), "b"), Message("all_reduce", 64, (0, 1), "a", (0,))]
    with pytest.raises(LaunchError) as refused:
        timed(Step(4, (RankProgram(0, tuple(pair)), RankProgram(1, tuple(turned))), (0, 1, 0, 1)))
    assert refused.value.code == "step.deadlock"
