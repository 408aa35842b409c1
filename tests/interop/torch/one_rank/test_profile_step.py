"""One rank under PyTorch's fake process group: what is recorded of it, and the step that follows."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from nki.core.errors import LaunchError
from nki.interop.torch import profile_step
from nki.target.load import load_target
from nki.topology import collective_time, load_instance

TRN2, INSTANCE = load_target("trn2"), load_instance("trn2")


@torch.compile(backend="neuron", options={"target": "trn2"}, fullgraph=True)
def project(x: torch.Tensor, weight: torch.Tensor) -> Any:
    """A layer whose weight is divided by rows."""
    return functional.all_reduce(x @ weight, "sum", dist.group.WORLD) * 2


def a_step() -> None:
    """A compiled layer on shapes alone, an eager collective on its result, and a message of that to the next stage."""
    dist.init_process_group("neuron")
    made = project(torch.empty(8, 16, device="meta"), torch.empty(16, 8, device="meta"))
    made = made.cpu() if made.device.type != "meta" else torch.zeros_like(made, device="cpu")
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    if rank < half:
        dist.send(made, rank + half)
    else:
        dist.recv(made, rank - half)
    dist.all_reduce(made + 1)


def test_a_step_of_64_ranks() -> None:
    found = profile_step(a_step, 64, compiled=(0, 32), slowdown={5: 2.0})
    nbytes = 8 * 8 * 4
    reduced = [each for each in found.collectives if each.operation == "all_reduce"]
    messages = {each.name: each for each in found.collectives if each.operation in ("send", "receive")}
    assert {name: (each.nbytes, each.group, each.count) for name, each in messages.items()} == {
        "send": (nbytes, 2, 0.5),
        "recv": (nbytes, 2, 0.5),
    }
    assert [(each.nbytes, each.group, each.count) for each in reduced] == [(nbytes, 64, 1.0)] * 2
    world = collective_time("all_reduce", nbytes, [list(range(64))], INSTANCE, TRN2).ns
    assert [each.ns for each in reduced] == pytest.approx([world] * 2)
    assert found.class_of(5).ranks == (5,)
    assert found.class_of(37).ranks == (37,)  # who gets its message
    assert {each.program for each in found.classes} == {0, 32}
    assert not dist.is_initialized()
    assert "RANK" not in os.environ
    for each in found.classes:
        parts = each.work_ns + each.exposed_ns + each.waiting_ns + each.idle_ns
        assert parts == pytest.approx(found.makespan_ns)
    assert sum(piece.end_ns - piece.start_ns for piece in found.path) == pytest.approx(found.makespan_ns)


def test_bad_input() -> None:
    with pytest.raises(LaunchError) as refused:
        profile_step(lambda: None, 4)
    assert refused.value.code == "step.empty"
    assert not dist.is_initialized()
    for wrong in ({"compiled": (4,)}, {"compiled": ()}, {"slowdown": {4: 2.0}}, {"slowdown": {0: 0.0}}):
        with pytest.raises(LaunchError) as refused:
            profile_step(a_step, 4, **wrong)  # type: ignore[arg-type]
        assert refused.value.code == "step.ranks"
