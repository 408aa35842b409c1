"""A world of one rank, and what PyTorch or the device refuse in any world."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nki.core.errors import ArgumentError
from nki.interop.torch import enable_device

enable_device()


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("neuron", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def x() -> torch.Tensor:
    return torch.arange(6.0).view(2, 3).to("neuron").t()


def test_every_collective_is_a_copy() -> None:
    tensor, empty = x(), torch.empty(0, 3, device="neuron")
    for call in (dist.all_reduce, lambda each: dist.broadcast(each, 0), lambda each: dist.reduce(each, 0)):
        for each in (tensor, empty):
            call(each)
    assert torch.equal(tensor.cpu(), x().cpu())
    result = [torch.empty(3, 2, device="neuron")]
    dist.all_gather(result, tensor)
    assert torch.equal(result[0].cpu(), x().cpu())
    whole = torch.empty(3, 2, device="neuron")
    for exchange in (dist.all_gather_single, dist.reduce_scatter_single, dist.all_to_all_single):
        exchange(whole.zero_(), tensor.contiguous())
        assert torch.equal(whole.cpu(), x().cpu())
    dist.barrier(device_ids=[0])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: dist.broadcast(x(), 4), "distributed.rank"),
        (lambda: dist.reduce(x(), 1), "distributed.rank"),
        (lambda: dist.send(x(), 3), "distributed.rank"),
        (lambda: dist.recv(x(), 3), "distributed.rank"),
        (lambda: dist.recv(x()), "distributed.rank"),
        (lambda: dist.all_gather_single(x().flatten(), x()[0]), "distributed.sizes"),
        (lambda: dist.reduce_scatter_single(x()[0], x().flatten()), "distributed.sizes"),
        (lambda: dist.all_to_all_single(x(), x(), [2], [3]), "distributed.sizes"),
        (lambda: dist.all_gather([torch.ones(3, 2)], x()), "torch.mixed-devices"),
    ],
)
def test_a_call_that_cannot_be_names_its_line(call: Callable[[], Any], code: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.location.frame is not None
    assert caught.value.location.frame.file == __file__
    dist.all_reduce(x())  # the group is as good as before


def test_what_pytorch_refuses_by_itself() -> None:
    with pytest.raises(ValueError, match="Rank 7 is out of range"):
        dist.new_group([7])
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group("neuron", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(3))
    with socket.socket() as taken, pytest.raises(RuntimeError, match="EADDRINUSE"):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        dist.TCPStore("127.0.0.1", taken.getsockname()[1], 1, True)
