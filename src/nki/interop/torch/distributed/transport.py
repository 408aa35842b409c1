"""Bytes between the memories of hosts: what Gloo does for a process group. Every call blocks, without Python's lock."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from nki.interop.torch.distributed.calls import Call, record_size, unpacked
from nki.interop.torch.distributed.ways import COLLECTIVES, Way

_UNUSED_TAG = (1 << 31) - 1
"""The tag of messages that nobody sends."""
_FIRST_TAG = (1 << 31) - 3
"""The tag of messages of which collectives of callbacks consist; those below it are of callbacks of these."""
_AT_ONCE = timedelta(milliseconds=1)


class Transport:
    """One group's way to its ranks; tensors are flat CPU tensors of bytes."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        self.gloo = gloo
        self.rank = rank
        self.size = size

    def on(self, way: Way) -> Transport:
        """What collectives on a way use. Gloo tells its own apart by their order, so that only one way has them."""
        return self if way.tag == COLLECTIVES.tag else _Messages(self.gloo, self.rank, self.size, _FIRST_TAG - way.tag)

    def records(self, call: Call) -> list[Call]:
        """The calls of all ranks, in their order."""
        own = torch.frombuffer(bytearray(call.packed(self.size)), dtype=torch.uint8)
        found = self.gathered(own).view(self.size, -1)
        return [unpacked(bytes(found[rank].numpy())) for rank in range(self.size)]

    def gathered(self, own: torch.Tensor) -> torch.Tensor:
        """What all ranks have, one behind the other; all have as much."""
        result = torch.empty(self.size * own.numel(), dtype=torch.uint8)
        if own.numel():
            self.gloo._allgather_base(result, own).wait()
        return result

    def exchanged(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        """What the ranks have for this one, of these sizes; `parts` are for each of them."""
        result = torch.empty(sum(sizes), dtype=torch.uint8)
        sent = torch.cat([*parts]) if parts else torch.empty(0, dtype=torch.uint8)
        counts = [part.numel() for part in parts]
        self.gloo.alltoall_base(result, sent, [*sizes], counts, c10d.AllToAllOptions()).wait()
        return list(result.split([*sizes]))

    def broadcast(self, data: torch.Tensor, root: int) -> None:
        """Give all ranks what `root` has."""
        if data.numel():
            options = c10d.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 0
            self.gloo.broadcast([data], options).wait()

    def send(self, data: torch.Tensor, target: int, tag: int) -> Any:
        """Begin to send; returns what waits until it was received."""
        return self.gloo.send([data], target, tag)

    def receive(self, size: int, source: int | None, tag: int) -> tuple[torch.Tensor, int]:
        """A message of a size that is known, and who sent it."""
        data = torch.empty(size, dtype=torch.uint8)
        if source is None:
            work = self.gloo.recv_anysource([data], tag)
            work.wait()
            return data, int(work._source_rank())
        self.gloo.recv([data], source, tag).wait()
        return data, source

    def record_of(self, call: Call) -> torch.Tensor:
        """The record that comes before a message."""
        return torch.frombuffer(bytearray(call.packed(0)), dtype=torch.uint8)

    def receive_record(self, source: int | None, tag: int) -> tuple[Call, int]:
        """The record of the next message, and who sent it."""
        data, sender = self.receive(record_size(0), source, tag)
        return unpacked(bytes(data.numpy())), sender

    def give_up(self) -> None:
        """End everything that waits in Gloo: a message that does not come in time closes all connections.

        Gloo stays until the process has ended, since its end would wait for calls that cannot end any more.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.gloo))
        if self.size > 1:
            nothing = [torch.empty(1, dtype=torch.uint8)]
            with contextlib.suppress(RuntimeError):
                self.gloo.recv(nothing, (self.rank + 1) % self.size, _UNUSED_TAG).wait(_AT_ONCE)


class _Messages(Transport):
    """Collectives that consist of messages with a tag of their own, at the same time as others."""

    def __init__(self, gloo: Any, rank: int, size: int, tag: int) -> None:
        super().__init__(gloo, rank, size)
        self._tag = tag

    def gathered(self, own: torch.Tensor) -> torch.Tensor:
        """What all ranks have, one behind the other; all have as much."""
        return torch.cat(self.exchanged([own] * self.size, [own.numel()] * self.size))

    def exchanged(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        """What the ranks have for this one, of these sizes; `parts` are for each of them."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        sends = [self.send(parts[rank].contiguous(), rank, self._tag) for rank in others if parts[rank].numel()]
        found = {rank: self.receive(sizes[rank], rank, self._tag)[0] for rank in others if sizes[rank]}
        for work in sends:
            work.wait()
        nothing = torch.empty(0, dtype=torch.uint8)
        return [parts[rank].clone() if rank == self.rank else found.get(rank, nothing) for rank in range(self.size)]

    def broadcast(self, data: torch.Tensor, root: int) -> None:
        """Give all ranks what `root` has."""
        parts = [data if self.rank == root else data[:0]] * self.size
        found = self.exchanged(parts, [data.numel() if rank == root else 0 for rank in range(self.size)])
        if self.rank != root:
            data.copy_(found[root])
