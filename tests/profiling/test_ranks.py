"""Profiles of steps: times add up, are those of a count by hand, and are the same in the file and in the trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.core.errors import ArtifactError
from nki.profiling.ranks.build import profile_step
from nki.profiling.ranks.coverage import Covered
from nki.profiling.ranks.meetings import coalesced, meetings_of, shown_of
from nki.profiling.ranks.record import StepProfile
from nki.timing.ranks.step import RankProgram, Run, step_of
from tests.profiling.test_formats import Read, packets
from tests.timing.ranks_reference import LATENCY, Item, sketched
from tests.timing.test_ranks import INSTANCE, SIGNAL, TRN2, all_reduce_ns, reducing

TIME = 4 * 2500.0
"""Of the work that hides a part of the collective."""


def straggling(ranks: int = 8) -> StepProfile:
    """Groups of four, in which rank 5 takes twice as long."""
    run = Run((sketched(reducing(1000.0, 500.0, (0, 1, 2, 3))),), "toy")
    return profile_step(step_of([RankProgram(0, (run, run))], ranks, {5: 2.0}), INSTANCE, TRN2, "toy")


def test_times_by_hand() -> None:
    """Work on Scalar hides what of the collective it takes; then only the rest is exposed."""
    items = [
        Item("vector", 1000.0),
        Item("dma0", 0.0, (0, 1), (0,)),
        Item("scalar", 3000.0),
        Item("vector", 500.0, (), (1,)),
    ]
    run = Run((sketched(items),), "toy")
    found = profile_step(step_of([RankProgram(0, (run,))], 2, {1: 2.0}), INSTANCE, TRN2, "toy")
    moves = all_reduce_ns([[0, 1]])
    ready, start = 1000 + SIGNAL, 2 * (1000 + SIGNAL)
    fast, slow = found.classes
    assert (fast.work_ns, slow.work_ns) == pytest.approx((3000 + 500, 2 * 3500))
    assert (fast.hidden_ns, slow.hidden_ns) == pytest.approx((3000 - start, 6000 - start))
    assert (fast.exposed_ns, slow.exposed_ns) == pytest.approx((moves - fast.hidden_ns, moves - slow.hidden_ns))
    assert fast.waiting_ns == 0  # it works meanwhile
    (made,) = fast.communications
    assert (made.ready_ns, made.start_ns) == pytest.approx((ready, start))
    assert found.makespan_ns == pytest.approx(start + moves + 2 * (LATENCY + 500))
    assert fast.idle_ns == pytest.approx(found.makespan_ns - 3500 - fast.exposed_ns)
    assert found.bound_by == found.collectives[0]
    assert found.collectives[0].critical_ns == pytest.approx(moves)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=12), st.integers(1, 6))
def test_coverage_is_a_count_of_units(spans: list[tuple[int, int]], most: int) -> None:
    rows = np.array([(start, start + length) for start, length in spans], float).reshape(-1, 2)
    units = {at for start, length in spans for at in range(start, start + length)}
    found = Covered(rows)
    assert found.ns == len(units)
    asked = np.array([[0, 10], [5, 60], [20, 20]], float)
    assert found.within(asked).tolist() == [len([u for u in units if low <= u < high]) for low, high in asked]
    shown = coalesced([(start, end) for start, end in found.rows.tolist()], most)
    assert len(shown) <= most
    assert units <= {at for start, end in shown for at in range(int(start), int(end))}


def test_the_file_has_everything(tmp_path: Path) -> None:
    made = straggling()
    made.save(tmp_path)
    found = StepProfile.load(tmp_path)
    assert found.to_json() == made.to_json()
    assert found.groups == made.groups == [[(0, 1, 2, 3), (4, 5, 6, 7)]]
    assert [each.work for each in found.classes] == [each.work for each in made.classes]
    assert [each.communications for each in found.classes] == [each.communications for each in made.classes]


@pytest.mark.parametrize(
    ("where", "value", "code"),
    [
        (("version",), 2, "profile.version"),
        (("ranks",), 9, "profile.values"),
        (("makespan_ns",), "1", "profile.values"),
        (("classes", 0, "ranks"), [[0, 10**9]], "profile.values"),
        (("classes", 0, "communications", 0, 0), 7, "profile.values"),
        (("collectives", 0, "where"), "\x1b[2J", "profile.values"),
        (("path", 0), [1.0], "profile.values"),
        (("groups",), [], "profile.values"),
        (("notes",), None, "profile.values"),
    ],
)
def test_a_file_of_somebody_else_is_read_with_distrust(
    where: tuple[Any, ...], value: Any, code: str, tmp_path: Path
) -> None:
    straggling().save(tmp_path)
    whole = json.loads((tmp_path / "step.json").read_text())
    at = whole
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    (tmp_path / "step.json").write_text(json.dumps(whole))
    with pytest.raises(ArtifactError) as refused:
        StepProfile.load(tmp_path)
    assert refused.value.code == code


def test_some_ranks_stand_for_many() -> None:
    made = straggling(4096)
    assert len(made.classes) == 3
    shown = shown_of(made, 16)
    assert shown == [*range(16)]  # which has one of each class
    assert shown_of(straggling(8), 16) == [*range(8)]
    late = profile_step(
        step_of([RankProgram(0, (Run((sketched(reducing(1.0, 1.0, (0, 1))),), "toy"),))], 4096, {4000: 9.0}),
        INSTANCE,
        TRN2,
        "toy",
    )
    assert shown_of(late, 4) == [0, 1, 4000, 4001]


def test_a_trace_has_a_process_for_each_rank_and_flows_from_who_comes_last(tmp_path: Path) -> None:
    made = straggling()
    read = Read(packets(made, tmp_path))
    assert [name.partition(":")[0] for name in read.processes.values()][1:] == [f"rank {rank}" for rank in range(8)]
    assert read.starts == read.ends  # every flow begins once and ends once
    assert len(read.starts) == 2 * 2 * 3  # two collectives of two groups, from one rank to three others
    for rank in range(8):
        named = {read.names[uuid]: uuid for uuid, parent in read.parents.items() if parent == rank + 2}
        mine = made.class_of(rank)
        moved = [(start, end) for start, end, _ in read.slices[named["collectives"]]]
        assert moved == [(round(each.start_ns), round(each.end_ns)) for each in mine.communications]
        ends = [flow for _, _, event in read.slices[named["collectives"]] for flow in event.terminating_flow_ids]
        late = [event.name for _, _, event in read.slices[named["meetings"]]]
        assert (len(ends), late) == ((0, ["comes last"] * 2) if rank in (0, 5) else (2, []))
    assert [meeting.last for meeting in meetings_of(made, range(8))] == [0, 5, 0, 5]
