"""A program for torchrun: every collective of c10d on the device against NumPy; prints how many cases there were."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum

import nki
import nki.language as nl
from nki import collectives as ncc
from nki.interop.torch import eager_on, enable_device
from nki.runtime import run_ranks
from tests.interop.torch.distributed import bad_input_cases, documented_cases, model_cases

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.int64,
    torch.float16,
    torch.float64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e5m2,
]
SHAPES = [(), (0, 4), (5, 3), (190, 97)]
FUNCTIONS = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}


def values(seed: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """What a rank has: each knows what the others have."""
    made = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)) * 3
    if dtype.is_complex:
        return torch.complex(made, made.flip(0) if made.dim() else made)
    return (made > 0) if dtype is torch.bool else made.abs().to(dtype) if dtype is torch.uint8 else made.to(dtype)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """In a dtype that NumPy has, and that holds every value."""
    wide = tensor.dtype.is_floating_point and tensor.dtype is not torch.float64
    return (tensor.cpu().float() if wide else tensor.cpu()).numpy()


def expected(parts: Sequence[torch.Tensor], name: str, factor: float = 1.0) -> torch.Tensor:
    """The reduction in the order of the ranks, in float32 with one rounding, written without the package."""
    dtype = parts[0].dtype
    arrays = [as_numpy(part) for part in parts]
    if dtype is torch.bool:
        return torch.from_numpy(np.asarray((np.any if name in ("sum", "max") else np.all)(np.stack(arrays), 0)))
    if name == "premul_sum":
        arrays = [array * array.dtype.type(factor) for array in arrays]
    if dtype is torch.uint8:
        arrays = [array.astype(np.float32) for array in arrays]
    with np.errstate(all="ignore"):
        found = reduce(FUNCTIONS.get(name, np.add), arrays)
        if name == "avg":
            whole = not (dtype.is_floating_point or dtype.is_complex)
            real = found if whole else np.atleast_1d(found).view(found.real.dtype)
            found = np.trunc(found / len(parts)) if whole else (real / real.dtype.type(len(parts))).view(found.dtype)
            found = found.reshape(parts[0].shape)
        if dtype is torch.uint8:
            found = np.clip(found, 0, 255)
    return torch.from_numpy(np.asarray(found)).to(dtype)


@nki.jit
def summed(a: Any, lists: Any) -> Any:
    """The sum among the ranks of a list."""
    result = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    ncc.all_reduce([a], [result], ncc.ReplicaGroup(lists), nl.add)
    return result


@nki.jit
def passed_on(a: Any, ranks: int) -> Any:
    """What the rank before has."""
    result = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    ncc.collective_permute([a], [result], [(rank, (rank + 1) % ranks) for rank in range(ranks)])
    return result


class Cases:
    """The cases of one group."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.ranks = dist.get_process_group_ranks(group)
        self.size = len(self.ranks)
        self.place = dist.get_rank(group)
        self.done = 0

    def same(self, found: torch.Tensor, wanted: torch.Tensor, what: object) -> None:
        """Bit for bit, but for which NaN it is."""
        found = found.cpu()
        assert found.dtype == wanted.dtype and found.shape == wanted.shape, (what, found, wanted)
        if found.dtype.itemsize == 1:
            found, wanted = found.view(torch.uint8), wanted.view(torch.uint8)
        assert torch.equal(found, wanted) or torch.allclose(found, wanted, 0, 0, equal_nan=True), (what, found, wanted)
        self.done += 1

    def all(self, shape: Sequence[int], dtype: torch.dtype, more: int = 0) -> list[torch.Tensor]:
        return [values(rank * 100 + more, shape, dtype) for rank in self.ranks]

    def own(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return parts[self.place].to("neuron")

    def operations(self, dtype: torch.dtype) -> list[tuple[str, Any, float]]:
        kinds: list[tuple[str, Any, float]] = [("sum", dist.ReduceOp.SUM, 1.0)]
        if dtype is not torch.bool:
            kinds.append(("avg", dist.ReduceOp.AVG, 1.0))
        if not dtype.is_complex:
            kinds += [(name, getattr(dist.ReduceOp, name.upper()), 1.0) for name in ("product", "min", "max")]
        if dtype.is_floating_point:
            kinds.append(("premul_sum", _make_nccl_premul_sum(0.375), 0.375))
        return kinds

    def reductions(self) -> None:
        for dtype, shape in itertools.product(DTYPES, SHAPES):
            parts = self.all(shape, dtype)
            for name, operation, factor in self.operations(dtype):
                wanted, what = expected(parts, name, factor), (name, dtype, shape)
                tensor = self.own(parts)
                dist.all_reduce(tensor, operation, self.group)
                self.same(tensor, wanted, ("all_reduce", what))
                tensor, root = self.own(parts), self.ranks[-1]
                dist.reduce(tensor, root, operation, self.group)
                last = self.place == self.size - 1
                self.same(tensor, wanted if last else parts[self.place], ("reduce", what))
                lists = [[values(rank * 100 + at, shape, dtype) for at in range(self.size)] for rank in self.ranks]
                mine = expected([parts[self.place] for parts in lists], name, factor)
                result = torch.empty(shape, dtype=dtype, device="neuron")
                dist.reduce_scatter(result, [t.to("neuron") for t in lists[self.place]], operation, self.group)
                self.same(result, mine, ("reduce_scatter", what))
                dist.reduce_scatter_tensor(result, torch.stack(lists[self.place]).to("neuron"), operation, self.group)
                self.same(result, mine, ("reduce_scatter_tensor", what))

    def bits(self) -> None:
        for name, function in (("BAND", np.bitwise_and), ("BOR", np.bitwise_or), ("BXOR", np.bitwise_xor)):
            for dtype in (torch.int32, torch.uint8, torch.int64):
                parts = self.all((9,), dtype)
                tensor = self.own(parts)
                dist.all_reduce(tensor, getattr(dist.ReduceOp, name), self.group)
                self.same(tensor, torch.from_numpy(reduce(function, [part.numpy() for part in parts])), name)

    def gathers(self) -> None:
        for dtype, shape in itertools.product(DTYPES, SHAPES):
            parts = self.all(shape, dtype)
            outputs = [torch.empty(shape, dtype=dtype, device="neuron") for _ in parts]
            dist.all_gather(outputs, self.own(parts), self.group)
            for found, wanted in zip(outputs, parts, strict=True):
                self.same(found, wanted, ("all_gather", dtype, shape))
            whole = torch.empty((self.size, *shape), dtype=dtype, device="neuron")
            dist.all_gather_into_tensor(whole, self.own(parts), self.group)
            self.same(whole, torch.stack(parts), ("all_gather_into_tensor", dtype, shape))
            root = self.ranks[0]
            gathered = outputs if self.place == 0 else None
            for tensor in outputs:
                tensor.zero_()
            dist.gather(self.own(parts), gathered, root, self.group)
            for found, wanted in zip(outputs if self.place == 0 else (), parts, strict=self.place == 0):
                self.same(found, wanted, ("gather", dtype, shape))
            result = torch.empty(shape, dtype=dtype, device="neuron")
            scattered = [part.to("neuron") for part in parts] if self.place == 0 else None
            dist.scatter(result, scattered, root, self.group)
            self.same(result, parts[self.place], ("scatter", dtype, shape))
            tensor = self.own(parts)
            dist.broadcast(tensor, self.ranks[-1], self.group)
            self.same(tensor, parts[-1], ("broadcast", dtype, shape))

    def uneven(self) -> None:
        """Each rank has another number of rows, the first one none."""
        parts = [values(rank, (at, 3), torch.float32) for at, rank in enumerate(self.ranks)]
        outputs = [torch.empty(part.shape, device="neuron") for part in parts]
        dist.all_gather(outputs, self.own(parts), self.group)
        for found, wanted in zip(outputs, parts, strict=True):
            self.same(found, wanted, "uneven all_gather")

    def exchanges(self) -> None:
        for dtype in DTYPES:
            rows = [[(at + 2 * to) % 4 for to in range(self.size)] for at in range(self.size)]
            tables = [
                [values(rank * 100 + to, (rows[at][to], 3), dtype) for to in range(self.size)]
                for at, rank in enumerate(self.ranks)
            ]
            wanted = [table[self.place] for table in tables]
            outputs = [torch.empty(part.shape, dtype=dtype, device="neuron") for part in wanted]
            dist.all_to_all(outputs, [part.to("neuron") for part in tables[self.place]], self.group)
            for found, part in zip(outputs, wanted, strict=True):
                self.same(found, part, ("all_to_all", dtype))
            result = torch.empty((sum(map(len, wanted)), 3), dtype=dtype, device="neuron")
            whole = torch.cat(tables[self.place]).to("neuron")
            dist.all_to_all_single(result, whole, list(map(len, wanted)), rows[self.place], self.group)
            self.same(result, torch.cat(wanted), ("all_to_all_single with sizes", dtype))
            parts = self.all((2 * self.size, 3), dtype)
            result = torch.empty((2 * self.size, 3), dtype=dtype, device="neuron")
            dist.all_to_all_single(result, self.own(parts), group=self.group)
            mine = slice(2 * self.place, 2 * self.place + 2)
            self.same(result, torch.cat([part[mine] for part in parts]), ("all_to_all_single", dtype))

    def strides(self) -> None:
        """Tensors whose elements do not lie one behind the other."""
        parts = self.all((6, 5), torch.float32)
        tensor = parts[self.place].t().contiguous().to("neuron").t()
        assert not tensor.is_contiguous()
        dist.all_reduce(tensor, group=self.group)
        self.same(tensor, expected(parts, "sum"), "columns")
        wide = torch.zeros(6, 10, device="neuron")
        half = wide[:, ::2]
        half.copy_(parts[self.place].to("neuron"))
        dist.broadcast(half, self.ranks[0], self.group)
        self.same(half, parts[0], "every second column")
        assert not wide[:, 1::2].cpu().any()

    def coalesced(self) -> None:
        first, second = self.all((4, 3), torch.float32), self.all((5,), torch.float32, 1)
        a, b = self.own(first), self.own(second)
        with dist._coalescing_manager(group=self.group, device=torch.device("neuron"), async_ops=True) as manager:
            dist.all_reduce(a, group=self.group)
            dist.all_reduce(b, group=self.group)
        manager.wait()
        self.same(a, expected(first, "sum"), "coalesced")
        self.same(b, expected(second, "sum"), "coalesced")
        outputs = [torch.empty(self.size, *part[0].shape, device="neuron") for part in (first, second)]
        with dist._coalescing_manager(group=self.group, device=torch.device("neuron")):
            dist.all_gather_into_tensor(outputs[0], self.own(first), self.group)
            dist.all_gather_into_tensor(outputs[1], self.own(second), self.group)
        self.same(outputs[0], torch.stack(first), "coalesced")
        self.same(outputs[1], torch.stack(second), "coalesced")
        a, b = (torch.empty(part[0].shape, device="neuron") for part in (first, second))
        stacks = [torch.stack([part] * self.size).to("neuron") for part in (first[self.place], second[self.place])]
        with dist._coalescing_manager(group=self.group, device=torch.device("neuron")):
            dist.reduce_scatter_tensor(a, stacks[0], group=self.group)
            dist.reduce_scatter_tensor(b, stacks[1], group=self.group)
        self.same(a, expected(first, "sum"), "coalesced")
        self.same(b, expected(second, "sum"), "coalesced")

    def messages(self) -> None:
        after, before = self.ranks[(self.place + 1) % self.size], self.ranks[self.place - 1]
        for dtype, shape in itertools.product(DTYPES, SHAPES):
            parts = self.all(shape, dtype)
            result = torch.empty(shape, dtype=dtype, device="neuron")
            receives = dist.irecv(result, before, self.group)  # before anybody sends
            sends = dist.isend(self.own(parts), after, self.group)
            receives.wait()
            sends.wait()
            self.same(result, parts[self.place - 1], ("a ring", dtype, shape))
        first, second = self.all((3,), torch.float32), self.all((4,), torch.float32, 1)
        a, b = torch.empty(3, device="neuron"), torch.empty(4, device="neuron")
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self.own(second), after, self.group, 7),
                dist.P2POp(dist.isend, self.own(first), after, self.group, 3),
                dist.P2POp(dist.irecv, a, before, self.group, 3),
                dist.P2POp(dist.irecv, b, before, self.group, 7),
            ]
        )
        for work in works:
            work.wait()
        self.same(a, first[self.place - 1], "tags")
        self.same(b, second[self.place - 1], "tags")
        if self.place == 0:
            found = set()
            for _ in self.ranks[1:]:
                sender = dist.recv(a, None, self.group)
                found.add(sender)
                self.same(a, first[self.ranks.index(sender)], "any source")
            assert found == set(self.ranks[1:])
        else:
            dist.send(self.own(first), self.ranks[0], self.group)

    def objects(self) -> None:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, {"rank": self.place}, self.group)
        assert found == [{"rank": at} for at in range(self.size)]
        shared = [self.place, "text"]
        dist.broadcast_object_list(shared, self.ranks[0], self.group)
        assert shared == [0, "text"]
        dist.barrier(self.group)
        self.done += 2

    def works(self) -> None:
        parts = self.all((5,), torch.float32)
        tensors = [self.own(parts) for _ in range(8)]
        works = [dist.all_reduce(tensor, group=self.group, async_op=True) for tensor in tensors]
        doubled = works[0].get_future().then(lambda future: future.value()[0] * 2)
        for work, tensor in zip(works, tensors, strict=True):
            assert work.wait() and work.is_completed()
            self.same(tensor, expected(parts, "sum"), "async")
        self.same(doubled.wait(), expected(parts, "sum") * 2, "a future")

    def callbacks(self) -> None:
        """Callbacks that wait for collectives of their own, which never meet those that the program makes meanwhile."""
        first, second = self.all((5,), torch.float32), self.all((9, 2), torch.float32, 1)

        def again(future: Any) -> Any:
            future.value()[0].mul_(0.5)
            return dist.all_reduce(future.value()[0], group=self.group, async_op=True).get_future().wait()

        def at_another_time(_: Any) -> Any:
            time.sleep(0.01 * self.place)
            inner = dist.all_gather(outputs, self.own(first), self.group, async_op=True).get_future()
            return inner.then(
                lambda gathered: dist.broadcast(gathered.value()[self.place], self.ranks[0], self.group)
            ).wait()

        outputs = [torch.empty(5, device="neuron") for _ in self.ranks]
        others = [self.own(second) for _ in range(6)]
        chains = []
        for tensor in others:
            begun = dist.all_reduce(self.own(first), group=self.group, async_op=True).get_future()
            chains.append(begun.then(again).then(again))
            dist.all_reduce(tensor, group=self.group)
        last = chains[-1].then(at_another_time)
        failed = last.then(lambda _: chains[9])
        total = expected(first, "sum")
        for _ in range(2):
            total = expected([total * 0.5] * self.size, "sum")
        for chain in chains:
            self.same(chain.wait()[0], total, "a chain")
        for tensor in others:
            self.same(tensor, expected(second, "sum"), "beside chains")
        last.wait()
        self.same(outputs[self.place], first[0], "a callback of a callback")
        for made in (failed, failed.then(lambda future: future.value())):
            try:
                made.wait()
            except IndexError:
                self.done += 1
            else:
                raise AssertionError("a callback's error is lost")

    def functional(self) -> None:
        collectives = dist._functional_collectives
        parts = self.all((2 * self.size, 3), torch.float32)
        tensor, mine = self.own(parts), slice(2 * self.place, 2 * self.place + 2)
        self.same(collectives.all_reduce(tensor, "sum", self.group) + 0, expected(parts, "sum"), "functional")
        self.same(collectives.all_gather_tensor(tensor, 0, self.group) + 0, torch.cat(parts), "functional")
        scattered = collectives.reduce_scatter_tensor(tensor, "sum", 0, self.group)
        self.same(scattered + 0, expected(parts, "sum")[mine], "functional")
        exchanged = collectives.all_to_all_single(tensor, None, None, self.group)
        self.same(exchanged + 0, torch.cat([part[mine] for part in parts]), "functional")
        self.same(collectives.broadcast(tensor, 0, self.group) + 0, parts[0], "functional")

    def kernels(self) -> None:
        """A kernel's collectives meet those of the other processes, and give what threads give, and `all_reduce`."""
        if self.place != self.ranks[self.place]:
            return  # kernels name ranks of the world
        for dtype in (torch.float32, torch.bfloat16):
            parts = self.all((40, 50), dtype)
            ring = [[*self.ranks[1:], self.ranks[0]]]
            pairs = [self.ranks[at : at + 2] for at in range(0, self.size, 2)] if self.size % 2 == 0 else ring
            for lists in (ring, [[rank] for rank in self.ranks], pairs):
                arguments = [(part, lists) for part in parts]
                wanted = run_ranks(summed, arguments)
                self.same(summed(parts[self.place], lists), wanted[self.place], ("a kernel", dtype))
                self.same(summed(self.own(parts), lists), wanted[self.place], ("a kernel on the device", dtype))
            in_order = run_ranks(summed, [(part, [self.ranks]) for part in parts])
            tensor = self.own(parts)
            dist.all_reduce(tensor, group=self.group)
            self.same(tensor, in_order[self.place], ("threads", dtype))
            moved = passed_on(parts[self.place], self.size)
            self.same(moved, parts[self.place - 1], ("a kernel's ring", dtype))

    def run(self) -> int:
        for check in (
            self.reductions,
            self.bits,
            self.gathers,
            self.uneven,
            self.exchanges,
            self.strides,
            self.coalesced,
            self.messages,
            self.objects,
            self.works,
            self.callbacks,
            self.functional,
            self.kernels,
        ):
            check()
        return self.done


def main() -> None:
    enable_device()
    if "few" in sys.argv:
        del DTYPES[3:7], SHAPES[2]
    if "documents" in sys.argv:
        print(f"{documented_cases.run()} blocks", flush=True)
    dist.init_process_group("cpu:gloo,neuron:neuron")
    rank, size = dist.get_rank(), dist.get_world_size()
    done = Cases(dist.group.WORLD).run()
    if size > 2:
        odd = dist.new_group([*range(1, size)])
        if rank:
            done += Cases(odd).run()
    whole = torch.ones(3) * rank
    dist.all_reduce(whole)  # of CPU tensors, which Gloo does
    assert whole.tolist() == [sum(range(size))] * 3
    bad_input_cases.a_slow_rank_is_waited_for()
    if "models" in sys.argv:
        eager_on("host")
        model_cases.run(steps=3)
        eager_on("device")
    dist.destroy_process_group()
    if size == len(("the one", "the other")):
        done += bad_input_cases.run()
    print(f"rank {rank}: {done} cases", flush=True)


if __name__ == "__main__":
    main()
