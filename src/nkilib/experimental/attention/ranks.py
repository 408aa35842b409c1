"""Tensors that go round a ring of ranks, and which rank's are here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits
from nkilib import streaming as st


class Passing(NamedTuple):
    """Tensors in HBM that go round a ring.

    Attributes:
        tensors: of this rank, which stay as they are.
        parts: slices of dimension 0 that this core needs; the others are not sent.
    """

    tensors: Sequence[Any]
    parts: Sequence[slice]

    def begin(self) -> list[Any]:
        """Buffers with the tensors of this rank, which can be sent."""
        buffers = self.room()
        for buffer, tensor in zip(buffers, self.tensors, strict=True):
            for part in self.parts:
                st.copy(buffer[part], tensor[part])
        return buffers

    def room(self) -> list[Any]:
        """Buffers of the same shapes."""
        return [nl.ndarray(each.shape, dtype=each.dtype, buffer=nl.private_hbm) for each in self.tensors]

    def send(self, sent: Sequence[Any], received: Sequence[Any], group: ReplicaGroup) -> None:
        """Send buffers to the next rank, and receive those of the one before."""
        for source, target in zip(sent, received, strict=True):
            for part in self.parts:
                ncc.collective_permute_implicit([[source[part]]], [[target[part]]], group)


def group_of(replica_groups: Any, ranks: int) -> ReplicaGroup:
    """Rings of ranks, each in its order.

    Args:
        replica_groups: lists of ranks, or None for one list of all.
        ranks: of each list.

    Raises:
        KernelLimit: lists of another length (``nkilib.argument``).
    """
    lists = [list(map(int, each)) for each in replica_groups or [range(ranks)]]
    lengths = sorted({len(each) for each in lists})
    limits.need(
        lengths == [ranks],
        "num_workers",
        ranks,
        f"each list of replica_groups has num_workers ranks, and here they have {', '.join(map(str, lengths))}",
        "pass as many ranks in each list as num_workers says",
    )
    return ReplicaGroup(lists)


def steps(passing: Passing, group: ReplicaGroup, ranks: int) -> Iterator[list[Any]]:
    """The tensors that are here in each step, beginning with this rank's; the next ones come meanwhile."""
    if ranks == 1:
        yield list(passing.tensors)
        return
    here, free = passing.begin(), passing.room()
    for step in range(ranks):
        if step + 1 < ranks:
            passing.send(here, free, group)
        yield here if step else list(passing.tensors)
        here, free = free, here


def places(group: ReplicaGroup) -> Any:
    """A table in HBM: the place of each rank in its list, ``(ranks, 1)`` int32."""
    lists = group.ranks()
    table = np.zeros((1 + max(map(max, lists)), 1), np.int32)
    for each in lists:
        table[list(each), 0] = range(len(each))
    return nl.shared_constant(table)


def place(step: int, group: ReplicaGroup, table: Any) -> Any:
    """The place in its list of the rank whose tensors are here, as a scalar of the device.

    Args:
        table: of `places`.
    """
    rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)
    found = st.sbuf((1, 1), nl.int32)
    nisa.dma_copy(dst=found, src=table.select(0, rank))
    return nisa.scalar_load(found)


def check_bounds(a: Mapping[str, Any], striped: str, count: int, rows: int) -> None:
    """Check ``bound_min`` and ``bound_max`` of a call, and that a mask which is striped is causal.

    Args:
        a: arguments by name.
        striped: name of the one that says whether sequences are striped.
        count: queries.
        rows: heads of all of the batch.

    Raises:
        KernelLimit: ``nkilib.argument``.
    """
    rule = f"{striped} says where a causal mask is"
    limits.need(a["use_causal_mask"] or not a[striped], striped, True, rule, "pass use_causal_mask=True")
    given = [name for name in ("bound_min", "bound_max") if a[name] is not None]
    rule = "bound_min and bound_max come together"
    limits.need(len(given) in (0, 2), "the bounds", f"{', '.join(given)} alone", rule, "pass both")
    rule = "bounds of packed sequences count keys of each rank, whose sequences are striped"
    limits.need(not given or a[striped], striped, False, rule, f"pass {striped}=True")
    for name in given:
        found = prod(a[name].shape) / count
        rule = f"{name} is (batch * heads, queries), ({rows}, {count}), or has one row for all of the batch"
        limits.need(found in (1, rows), name, list(a[name].shape), rule, f"pass {name} as ({rows}, {count})")
