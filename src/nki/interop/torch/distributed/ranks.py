"""The ranks of kernels in the processes of a default group: their collectives meet those of the other processes."""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.distributed as dist

from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.group import Group
from nki.interop.torch.distributed.pending import Pending
from nki.interop.torch.distributed.processes import group_of
from nki.interop.torch.distributed.ways import Way
from nki.interop.torch.memory import DEVICE
from nki.ranks import current
from nki.ranks.protocol import Brought, Communicator, Meeting, check_same_call, deadlock, same_members

_TAG = (1 << 31) - 2
"""The tag of messages between kernels, far from those that programs use."""
_LENGTH = 8


class ProcessRank:
    """This process, as a rank of kernels: its number and that of all in the default group."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rank = group.number
        self.size = len(group.members)

    def meet(self, meeting: Meeting) -> Brought:
        """Exchange what this rank brings with the members, each with each."""
        group = self._group
        others = [member for member in meeting.members if member != self.rank]
        if not others:
            return Brought([meeting.value])
        call = Call(meeting.what, meeting.location)
        sent = pickle.dumps(meeting)
        lanes = [self._send(call, sent, other) for other in others]
        values = {self.rank: meeting.value}
        for other in others:
            theirs = self._receive(call, other)
            if not same_members(meeting, theirs):
                error = deadlock(self.rank, meeting, {other: theirs})
                group.tell(error)
                raise error
            check_same_call(self.rank, meeting, other, theirs)
            values[other] = theirs.value
        for pending in lanes:
            pending.wait()
        return Brought(values[member] for member in meeting.members)

    def _send(self, call: Call, data: bytes, other: int) -> Pending:
        group, target = self._group, self._group.members.index(other)
        length = torch.frombuffer(bytearray(len(data).to_bytes(_LENGTH, "little")), dtype=torch.uint8)
        body = torch.frombuffer(bytearray(data), dtype=torch.uint8)

        def run(_: Pending) -> None:
            for work in [group.transport.send(each, target, _TAG) for each in (length, body)]:
                work.wait()

        return group.submit(call, run, [], Way(group.rank, target, _TAG))

    def _receive(self, call: Call, other: int) -> Meeting:
        group, source = self._group, self._group.members.index(other)
        found: list[Meeting] = []

        def run(_: Pending) -> None:
            length, _sender = group.transport.receive(_LENGTH, source, _TAG)
            size = int.from_bytes(bytes(length.numpy()), "little")
            body, _sender = group.transport.receive(size, source, _TAG)
            found.append(pickle.loads(bytes(body.numpy())))

        group.submit(call, run, [], Way(source, group.rank, _TAG)).wait()
        return found[0]


def install() -> None:
    """Have kernels ask which rank this process is."""
    current.install(_of_default_group)


def _of_default_group() -> Communicator | None:
    """This process's rank, if there is a default group with the device's backend."""
    if not dist.is_initialized():
        return None
    world: Any = dist.group.WORLD
    if torch.device(DEVICE) not in world._device_types:
        return None
    return ProcessRank(group_of(world))
