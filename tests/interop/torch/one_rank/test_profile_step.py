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
from nki.interop.torch.one_rank.fake_group import as_rank
from nki.interop.torch.one_rank.recording import Recording
from nki.target.load import load_target
from nki.timing.ranks.step import Message
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
    received, last = found.class_of(40).communications[1:]  # after the one of the compiled layer
    assert last.ready_ns >= received.end_ns  # it is of what was received
    assert not dist.is_initialized()
    assert "RANK" not in os.environ
    for each in found.classes:
        parts = each.work_ns + each.exposed_ns + each.waiting_ns + each.idle_ns
        assert parts == pytest.approx(found.makespan_ns)
    assert sum(piece.end_ns - piece.start_ns for piece in found.path) == pytest.approx(found.makespan_ns)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # names that PyTorch replaces, and scripts have
def test_bytes_of_collectives_between_graphs() -> None:
    """As the topology takes them: of the whole result of an all-gather, else of what a rank brings."""
    part, whole = torch.zeros(2, 8), torch.zeros(8, 8)
    small, large = part.nbytes, whole.nbytes
    world = dist.group
    with as_rank(0, 4), Recording() as found:
        dist.all_reduce(part)
        dist.all_gather_into_tensor(whole, part)
        dist.all_gather([torch.zeros(2, 8) for _ in range(4)], part)
        dist.reduce_scatter_tensor(part, whole)
        dist.reduce_scatter(part, list(torch.zeros(8, 8).split(2)))
        dist.all_to_all_single(whole, torch.zeros(8, 8))
        dist.broadcast(part, 1)
        functional.wait_tensor(functional.all_reduce(part, "sum", world.WORLD))
        functional.wait_tensor(functional.all_gather_tensor(part, 0, world.WORLD))
        functional.wait_tensor(functional.reduce_scatter_tensor(whole, "sum", 0, world.WORLD))
        dist.isend(part, 3)
        dist.irecv(part, 2)
        dist.barrier()
    assert [(task.operation, task.nbytes) for task in found.tasks if isinstance(task, Message)] == [
        ("all_reduce", small),
        ("all_gather", large),
        ("all_gather", large),
        ("reduce_scatter", large),
        ("reduce_scatter", large),
        ("all_to_all", large),
        ("broadcast", small),
        ("all_reduce", small),
        ("all_gather", large),
        ("reduce_scatter", large),
        ("send", small),
        ("receive", small),
    ]
    assert [task.ranks for task in found.tasks if isinstance(task, Message)][-2:] == [(0, 3), (2, 0)]
    assert found.untimed == {"barrier": 1}


def test_bad_input() -> None:
    with pytest.raises(LaunchError) as refused:
        profile_step(lambda: None, 4)
    assert refused.value.code == "step.empty"
    assert not dist.is_initialized()
    for wrong in ({"compiled": (4,)}, {"compiled": ()}, {"slowdown": {4: 2.0}}, {"slowdown": {0: 0.0}}):
        with pytest.raises(LaunchError) as refused:
            profile_step(a_step, 4, **wrong)  # type: ignore[arg-type]
        assert refused.value.code == "step.ranks"
