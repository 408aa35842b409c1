"""Messages from one rank to another one."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from nki.core.errors import ArgumentError
from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.group import Group
from nki.interop.torch.distributed.operators.registry import boxed, operator
from nki.interop.torch.distributed.operators.tensors import Tensors, bytes_of, check_rank, fill, host_of
from nki.interop.torch.distributed.pending import Pending
from nki.interop.torch.distributed.processes import group_of
from nki.interop.torch.distributed.ways import Way
from nki.interop.torch.user_location import user_line

# ------------------------------------------------------------------------------------------------------------ messages


@operator
def c10d_send(tensors: Tensors, process_group: Any, dst: int, tag: int) -> Any:
    """Send a tensor to one rank."""
    where = user_line()
    group = group_of(dist.ProcessGroup.unbox(process_group))
    check_rank("send", dst, len(group.members))
    host = host_of(tensors[0], "send", where)
    call = Call(("send", group.members[dst], tag, host.numel(), str(host.dtype).removeprefix("torch.")), where)

    def run(_: Pending) -> None:
        data = bytes_of(host)
        works = [group.transport.send(group.transport.record_of(call), dst, tag)]
        if data.numel():
            works.append(group.transport.send(data, dst, tag))
        for work in works:
            work.wait()

    return boxed(group, group.submit(call, run, tensors, Way(group.rank, dst, tag)))


@operator
def c10d_recv_(tensors: Tensors, process_group: Any, src: int, tag: int) -> Any:
    """Get a tensor from one rank."""
    return _receive(tensors, process_group, src, tag)


@operator
def c10d_recv_any_source_(tensors: Tensors, process_group: Any, tag: int) -> Any:
    """Get a tensor from whichever rank sends one first."""
    return _receive(tensors, process_group, None, tag)


def _receive(tensors: Tensors, process_group: Any, src: int | None, tag: int) -> Any:
    where = user_line()
    group = group_of(dist.ProcessGroup.unbox(process_group))
    size = len(group.members)
    check_rank("recv", int(size == 1) if src is None else src, size)  # from anybody: from any other rank
    host = host_of(tensors[0], "recv", where)
    kind = host.numel(), str(host.dtype).removeprefix("torch.")
    call = Call(("recv", "any" if src is None else group.members[src], tag, *kind), where)

    def run(pending: Pending) -> None:
        sent, source = group.transport.receive_record(src, tag)
        if sent.what[-2:] != kind:
            raise _other_message(group, call, source, sent)
        pending.source = source
        if host.numel():
            fill(host, group.transport.receive(host.numel() * host.element_size(), source, tag)[0])

    return boxed(group, group.submit(call, run, tensors, Way(src, group.rank, tag)))


def _other_message(group: Group, call: Call, source: int, sent: Call) -> Exception:
    return ArgumentError(
        "distributed.message",
        f"rank {group.number} expects {call.what[-2]} elements of {call.what[-1]}, and rank {group.members[source]} "
        f"sends {sent.what[-2]} of {sent.what[-1]}, {sent.location}",
        rule="a message has as many elements of the same dtype on both sides",
        fix="give recv a tensor like the one that is sent",
        location=call.location,
    )
