"""The operators of c10d that the device has, and how a call of one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.group import Group
from nki.interop.torch.distributed.operators.tensors import Tensors
from nki.interop.torch.distributed.pending import Pending
from nki.interop.torch.distributed.processes import group_of
from nki.interop.torch.distributed.transport import Transport
from nki.interop.torch.distributed.work import work_of
from nki.interop.torch.user_location import user_line

OPERATORS: dict[str, Callable[..., Any]] = {}
"""By name, in the library c10d."""


def operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function the operator of its name, which comes after ``c10d_``."""
    OPERATORS[function.__name__.removeprefix("c10d_")] = function
    return function


# ---------------------------------------------------------------------------------------------------------- submitting


def begin(
    process_group: Any,
    what: tuple[Any, ...],
    run: Callable[[Transport], None],
    tensors: Tensors,
    timeout: int,
    sends: Sequence[int] = (),
    expects: Sequence[int] = (),
) -> Any:
    """Begin a collective; returns its work, as the operator has to.

    Args:
        process_group: of PyTorch, as operators get it.
        what: the name of the call, and what all ranks have in common.
        run: carries it out once all ranks are at this call.
        tensors: what it writes to.
        timeout: milliseconds that the others have to come; those of the group if it is not positive.
        sends: elements for each rank, if that is not the same everywhere.
        expects: elements from each rank.
    """
    group = group_of(dist.ProcessGroup.unbox(process_group))
    call = Call(what, user_line(), sends, expects)

    def carry_out(pending: Pending) -> None:
        transport = pending.transport
        group.agree(call, transport)
        run(transport)

    return boxed(group, group.submit(call, carry_out, tensors, patience=timeout / 1e3 if timeout > 0 else None))


def boxed(group: Group, pending: Pending) -> Any:
    """The work of a call, in the form in which an operator returns it."""
    work = work_of(pending)
    group.keep(work)
    return work.boxed()
