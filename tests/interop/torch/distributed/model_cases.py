"""A program for torchrun: PyTorch's ways to divide a model among processes, against one process on the CPU."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch._dynamo.utils import counters
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from nki.interop.torch import eager_on, enable_device
from tests.interop.torch.distributed.small_models import (
    BATCH,
    LENGTH,
    Model,
    batch,
    clip,
    loss_of,
    optimizer_of,
    reference,
)

_ROUNDING = 1e-5
"""By how much a loss may differ: sums of parts are added in another order."""


class Training:
    """A model on the device, trained in each of the ways.

    Args:
        steps: of the optimizer.
        llama: which of the two models.
        compiled: whether `torch.compile` makes programs of it.
    """

    def __init__(self, steps: int, llama: bool, compiled: bool) -> None:
        self.steps = steps
        self.llama = llama
        self.compiled = compiled
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def compile(self, function: Any) -> Any:
        return torch.compile(function, backend="neuron") if self.compiled else function

    def mine(self, step: int, part: int, parts: int) -> tuple[Tensor, Tensor]:
        """The part of a batch that a rank computes."""
        rows = slice(part * BATCH // parts, (part + 1) * BATCH // parts)
        words, wanted = batch(step)
        return words[rows].to("neuron"), wanted[rows].to("neuron")

    def train(self, model: Any, part: int, parts: int, clipped: bool = True) -> list[float]:
        """Losses of the whole batches, of which this rank has a part."""
        call = self.compile(model)
        optimizer = optimizer_of(model.parameters())
        losses = []
        for step in range(self.steps):
            words, wanted = self.mine(step, part, parts)
            loss = loss_of(call(words), wanted)
            optimizer.zero_grad()
            loss.backward()
            if clipped:
                clip(model.parameters())
            optimizer.step()
            losses.append(self.mean(loss))
        return losses

    def mean(self, loss: Tensor) -> float:
        total = loss.detach().clone()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        return total.item()

    def check(self, name: str, losses: list[float], layers: int = 2, clipped: bool = True) -> None:
        wanted = reference(self.steps, self.llama, layers, clipped)
        gap = max(abs(one - other) for one, other in zip(losses, wanted, strict=True))
        assert gap < _ROUNDING, (name, losses, wanted)
        assert wanted[-1] != wanted[0]
        breaks = f", breaks {dict(counters['graph_break'])}" if self.compiled else ""
        sys.stdout.write(f"rank {self.rank}: {name} {self.steps} steps, {gap:.1e}{breaks}\n")
        counters.clear()

    # ------------------------------------------------------------------------------------------------------- the ways

    def ddp(self) -> None:
        model = DistributedDataParallel(Model(self.llama).to("neuron"), find_unused_parameters=not self.compiled)

        def average(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
            """As PyTorch's own hooks, such as those of optimizers in a backward, do it."""
            model.reducer._run_allreduce_hook(bucket).wait()
            done: torch.futures.Future[Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer().div_(self.size))
            return done

        average.__annotations__.clear()  # PyTorch refuses classes that are named as text
        if not self.compiled:
            model.register_comm_hook(None, average)
        self.check("DDP", self.train(model, self.rank, self.size))

    def fsdp(self) -> None:
        mesh = init_device_mesh("neuron", (self.size,))
        model = self.sharded(Model(self.llama).to("neuron"), mesh)
        self.check("FSDP2", self.train(model, self.rank, self.size))
        self.checkpoint(model, mesh)

    @staticmethod
    def sharded(model: Model, mesh: DeviceMesh) -> Model:
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def checkpoint(self, model: Model, mesh: DeviceMesh) -> None:
        """What ranks save together is what another division of the model reads."""
        folder = [tempfile.mkdtemp()] if self.rank == 0 else [""]
        dist.broadcast_object_list(folder)
        dcp.save(get_model_state_dict(model), checkpoint_id=folder[0])
        other = self.tensor_parallel(Model(self.llama, 2).to("neuron"), mesh)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        state = get_model_state_dict(other)
        dcp.load(state, checkpoint_id=folder[0])
        set_model_state_dict(other, state)
        words = batch(0)[0].to("neuron")
        with torch.no_grad():
            torch.testing.assert_close(other(words).cpu(), model(words).cpu(), rtol=1e-5, atol=1e-5)

    @staticmethod
    def tensor_parallel(model: Model, mesh: DeviceMesh) -> Model:
        plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up", "gate")} | {
            name: RowwiseParallel() for name in ("o", "down")
        }
        for block in model.blocks:
            parallelize_module(block, mesh, {name: way for name, way in plan.items() if getattr(block, name)})
        return model

    def tp(self) -> None:
        """PyTorch clips no gradients of which some are divided and others are not."""
        model = self.tensor_parallel(Model(self.llama).to("neuron"), init_device_mesh("neuron", (self.size,)))
        self.check("TP", self.train(model, 0, 1, clipped=False), clipped=False)

    def pipeline(self) -> None:
        layers, device = max(self.size, 2), torch.device("neuron:0")
        model = Model(self.llama, layers).stage(self.rank, self.size).to(device)
        stage = PipelineStage(self.compile(model), self.rank, self.size, device)
        schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_of)
        optimizer = optimizer_of(model.parameters())
        losses = []
        for step in range(self.steps):
            words, wanted = (each.to(device) for each in batch(step))
            parts: list[Tensor] = []
            optimizer.zero_grad()
            schedule.step(*[words] * (self.rank == 0), target=wanted, losses=parts)
            self.clip_all(model)
            optimizer.step()
            last = torch.stack(parts).mean() if parts else torch.zeros((), device=device)
            dist.broadcast(last, self.size - 1)
            losses.append(last.item())
        self.check("pipeline", losses, layers)

    def clip_all(self, model: Model) -> None:
        """PyTorch leaves the norm over stages to the program."""
        norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()], foreach=False).square()
        dist.all_reduce(norm)
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.5, norm.sqrt(), foreach=False)

    def cp(self) -> None:
        """Each rank has a part of every sequence; gradients are averaged, since all have all weights."""
        mesh = init_device_mesh("neuron", (self.size,))
        model = Model(self.llama).to("neuron")
        optimizer, call = optimizer_of(model.parameters()), self.compile(model)
        losses = []
        for step in range(self.steps):
            words, wanted = (each.to("neuron") for each in batch(step))
            places = torch.arange(LENGTH, device="neuron")
            optimizer.zero_grad()
            with context_parallel(mesh, buffers=[words, wanted, places], buffer_seq_dims=[1, 1, 0]):
                loss = loss_of(call(words, places), wanted)
                loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
            clip(model.parameters())
            optimizer.step()
            losses.append(self.mean(loss))
        self.check("context", losses)

    def norm(self) -> None:
        """The statistics of all parts are those of the whole, of which each rank has another number of rows."""
        rows = [range(at * (at + 1), (at + 1) * (at + 2)) for at in range(self.size)]
        mine = slice(rows[self.rank].start, rows[self.rank].stop)
        wanted, kind = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
        found = DistributedDataParallel(torch.nn.SyncBatchNorm.convert_sync_batchnorm(kind).to("neuron"))
        for step in range(self.steps):
            made = torch.Generator().manual_seed(step)
            x, gradient = (torch.randn(rows[-1].stop, 3, 4, generator=made) for _ in range(2))
            whole, part = x.clone().requires_grad_(), x[mine].to("neuron").requires_grad_()
            results = wanted(whole), found(part)
            results[0].backward(gradient)
            results[1].backward(gradient[mine].to("neuron"))
            pairs = (results[1], results[0][mine]), (part.grad, whole.grad[mine])
            for one, other in (*pairs, *zip(found.buffers(), wanted.buffers(), strict=True)):
                torch.testing.assert_close(one.cpu(), other)
            for one, other in zip(found.parameters(), wanted.parameters(), strict=True):
                torch.testing.assert_close(one.grad.cpu() * self.size, other.grad)
                one.grad = other.grad = None
        sys.stdout.write(f"rank {self.rank}: SyncBatchNorm {self.steps} steps\n")

    def power(self) -> None:
        """Gradients that are sums of products, as many as a matrix has rows, are those of one process.

        The hook waits in callbacks for collectives, while the backward begins those of other buckets.
        """
        torch.manual_seed(0)
        kinds = [torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 7), torch.nn.Linear(7, 3)]
        wanted, start = torch.nn.Sequential(*kinds), 2
        found = DistributedDataParallel(copy.deepcopy(wanted).to("neuron"), bucket_cap_mb=1e-4)
        state = PowerSGDState(None, 8, start, min_compression_rate=1e-3)
        found.register_comm_hook(state, powerSGD_hook)
        models = found, wanted
        for step in range(start + self.steps):
            x, y = torch.randn(2, 4 * self.size, 6, generator=torch.Generator().manual_seed(step))
            mine = slice(4 * self.rank, 4 * self.rank + 4)
            ((found(x[mine].to("neuron")) - y[mine, :3].to("neuron")) ** 2).mean().backward()
            ((wanted(x) - y[:, :3]) ** 2).mean().backward()
            for model in models:
                torch.optim.SGD(model.parameters(), 0.5, foreach=False).step()
            for one, other in zip(found.parameters(), wanted.parameters(), strict=True):
                torch.testing.assert_close(one.grad.cpu(), other.grad)
                torch.testing.assert_close(one.cpu(), other)
                one.grad = other.grad = None
        assert len(state.p_memory_dict) > 1 and all(map(len, state.p_memory_dict.values()))
        sys.stdout.write(f"rank {self.rank}: PowerSGD {self.steps} steps\n")

    def two_dimensions(self) -> None:
        """Batches are divided along one dimension of a mesh, and layers along the other one."""
        mesh = init_device_mesh("neuron", (2, self.size // 2), mesh_dim_names=("data", "tensor"))
        model = self.tensor_parallel(Model(self.llama).to("neuron"), mesh["tensor"])
        model = self.sharded(model, mesh["data"])
        losses = self.train(model, mesh.get_local_rank("data"), 2, clipped=False)
        self.check("FSDP2 and TP", losses, clipped=False)


def run(steps: int, llama: bool = False, compiled: bool = False, ways: str = "") -> None:
    """All ways, or those named."""
    training = Training(steps, llama, compiled)
    every: dict[str, Callable[[], None]] = {
        "ddp": training.ddp,
        "fsdp": training.fsdp,
        "tp": training.tp,
        "pipeline": training.pipeline,
        "cp": training.cp,
        "norm": training.norm,
        "power": training.power,
    }
    if training.size > 2:
        every["mesh"] = training.two_dimensions
    for name, way in every.items():
        if name in (ways or name).split(","):
            way()


def main() -> None:
    place, steps, kind, how, *ways = sys.argv[1:]
    enable_device()
    eager_on(place)
    dist.init_process_group("neuron")
    run(int(steps), kind == "llama", how == "compiled", *ways)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
