"""Collectives in which each rank sends to one other rank, and the numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from nki.collectives.shared import (
    ENGINES,
    GROUP,
    PRIORITY,
    REDUCTION,
    SAME_SHAPES,
    SINGLE,
    SOURCE,
    ChannelDestinations,
    ChannelSources,
    HbmSources,
    Priority,
    Ranks,
    SomeHbmDestinations,
    bits_of,
    check_ranks,
    described,
    exchanged,
    members_of,
    pairs,
    put,
    reduced,
)
from nki.core.register import VirtualRegister
from nki.core.tensor import View
from nki.spec.arrays import Arrays
from nki.spec.cost_collective import permutes
from nki.spec.cost_core import sequences
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Int, Ints, Name, Op, Operand
from nki.spec.replica_group import ReplicaGroup
from nki.spec.rule import Rule
from nki.spec.sink import current_sink

_MAX_CHANNELS = 4
_RegisterDst = Annotated[VirtualRegister, Operand("register", writes=True)]
_Step = Annotated["int | VirtualRegister", Operand("register_or_int", reads=True)]
_RankPairs = Annotated["Sequence[tuple[int, int]]", Operand("rank_pairs")]

_PAIRS = Rule(
    "pairs",
    "ranks count from 0; each sends at most once, and receives at most once",
    lambda a, t: all(
        len(set(ranks)) == len(ranks) and min(ranks, default=0) >= 0
        for ranks in ([pair[side] for pair in a.source_target_pairs] for side in (0, 1))
    ),
    f"{SOURCE} collective_permute",
    "name each rank once as a source and once as a target",
    lambda a, t: f"source_target_pairs is {list(a.source_target_pairs)}",
)

_CHANNELS = Rule(
    "channels",
    "channel_ids counts the channels from 0, and there are at most 4",
    lambda a, t: list(a.channel_ids) == list(range(len(_channel_lists(a)[0]))) and len(a.channel_ids) <= _MAX_CHANNELS,
    f"{SOURCE} collective_permute_implicit",
    "pass channel_ids=list(range(n)) for n channels",
    lambda a, t: f"channel_ids is {list(a.channel_ids)}, there are {len(_channel_lists(a)[0])} channels",
)

_CHANNEL_TENSORS = Rule(
    "tensors",
    "all lists have one tensor for each channel, of one shape and dtype, all in HBM or all in SBUF",
    lambda a, t: _fit_together(_channel_lists(a)),
    f"{SOURCE} collective_permute_implicit",
    "pass tensors of the same shape and dtype",
    lambda a, t: "; ".join(described(views) for views in _channel_lists(a)),
)


def _channel_lists(a: Any) -> list[tuple[View, ...]]:
    return [getattr(a, name) for name in a._fields if name.endswith("_by_channel")]


def _fit_together(lists: Sequence[Sequence[View]]) -> bool:
    if len({len(views) for views in lists}) != 1:
        return False
    return all(
        len({(view.shape, view.dtype, view.on_chip) for view in views}) == 1 for views in zip(*lists, strict=True)
    )


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=[SINGLE, SAME_SHAPES, _PAIRS, PRIORITY],
    steps=permutes("CollectivePermute", "srcs"),
    effects=("ranks",),
)
def collective_permute(
    srcs: HbmSources,
    dsts: SomeHbmDestinations,
    source_target_pairs: _RankPairs,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Rank `source` of each pair sends its source tensor to rank `target`.

    The destination of a rank that is nobody's target stays as it is.

    Args:
        srcs, dsts: one tensor each, in HBM; shapes and dtypes equal.
        source_target_pairs: ``[(source, target), ...]``.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@collective_permute.body
def _(a: Any, x: Arrays) -> None:
    number = check_ranks(a.source_target_pairs, x, "collective_permute")
    members = sorted({rank for pair in a.source_target_pairs for rank in pair})
    if number not in members:
        return
    ((src, dst),) = pairs(a)
    pairs_of_all = tuple(map(tuple, a.source_target_pairs))
    what = ("collective_permute", (src.shape, src.dtype.name), pairs_of_all)
    brought = x.together(members, what, bits_of(x, src))
    for source, target in a.source_target_pairs:
        if target == number == source:
            x.dma(dst, src, False)
        elif target == number:
            put(x, dst, brought[members.index(source)])


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=[GROUP, _CHANNEL_TENSORS, _CHANNELS, PRIORITY],
    steps=permutes("CollectivePermute", "srcs_by_channel"),
    effects=("ranks",),
)
def collective_permute_implicit(
    srcs_by_channel: ChannelSources,
    dsts_by_channel: ChannelDestinations,
    replica_group: Ranks,
    channel_ids: Ints = [0],  # noqa: B006 - the published default; it is only read
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Each rank sends to its successor in a ring, and gets what its predecessor sends.

    Args:
        srcs_by_channel, dsts_by_channel: for each channel a list with one tensor, in HBM or SBUF; shapes and dtypes
            equal.
        replica_group: which ranks form a ring.
        channel_ids: 0, 1, ... for as many channels as there are lists; at most 4. (At most 2 if the group is not a
            whole node, which is not known here.)
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@collective_permute_implicit.body
def _(a: Any, x: Arrays) -> None:
    if len(members_of(a.replica_group, x, "collective_permute_implicit")) == 1:
        for src, dst in zip(a.srcs_by_channel, a.dsts_by_channel, strict=True):
            x.dma(dst, src, False)
        return
    place, brought = exchanged(a, x, "collective_permute_implicit", [bits_of(x, src) for src in a.srcs_by_channel])
    for dst, bits in zip(a.dsts_by_channel, brought[place - 1], strict=True):
        put(x, dst, bits)


@instruction(
    engines=ENGINES,
    source=SOURCE,
    rules=[GROUP, _CHANNEL_TENSORS, _CHANNELS, REDUCTION, PRIORITY],
    steps=permutes("CollectivePermuteReduce", "srcs0_by_channel"),
    effects=("ranks",),
)
def collective_permute_implicit_reduce(
    srcs0_by_channel: ChannelSources,
    srcs1_by_channel: ChannelSources,
    dsts_by_channel: ChannelDestinations,
    replica_group: Ranks,
    op: Op,
    channel_ids: Ints = [0],  # noqa: B006 - the published default; it is only read
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Each rank sends ``op(srcs0, srcs1)`` to its successor in a ring, and gets that of its predecessor.

    32-bit integers are reduced exactly, other dtypes in float32 with one rounding into the destination.

    Args:
        srcs0_by_channel, srcs1_by_channel, dsts_by_channel: for each channel a list with one tensor, in HBM or SBUF;
            shapes and dtypes equal.
        replica_group: which ranks form a ring.
        op: nl.add, nl.minimum or nl.maximum.
        channel_ids: as in `collective_permute_implicit`.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@collective_permute_implicit_reduce.body
def _(a: Any, x: Arrays) -> None:
    channels = zip(a.srcs0_by_channel, a.srcs1_by_channel, strict=True)
    sent = [reduced(x, a.op.name, [bits_of(x, first), bits_of(x, second)], first.dtype) for first, second in channels]
    place, brought = exchanged(a, x, "collective_permute_implicit_reduce", sent)
    for dst, bits in zip(a.dsts_by_channel, brought[place - 1], strict=True):
        put(x, dst, bits)


@instruction(engines=(Engine.sync,), source=SOURCE, public=False, steps=sequences("RankId"))
def collective_rank_id(dst: _RegisterDst, name: Name = None) -> None:
    """Put the number of this rank into a register: what `rank_id` issues."""


@collective_rank_id.body
def _(a: Any, x: Arrays) -> None:
    x.write_register(a.dst, x.ranks()[0])


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the number of this rank; 0 in a plain call, which has one rank.

    Args:
        name: of the instruction.
    """
    register = current_sink("nki.collectives.rank_id").register()
    collective_rank_id(register, name)
    return register


@instruction(
    engines=(Engine.sync,),
    source=SOURCE,
    rules=[
        GROUP,
        Rule(
            "channel",
            "channel_id is 0 to 3",
            lambda a, t: 0 <= a.channel_id < _MAX_CHANNELS,
            SOURCE,
            "pass one of the channel_ids of collective_permute_implicit",
            lambda a, t: f"channel_id is {a.channel_id}",
        ),
    ],
    public=False,
    steps=sequences("ProcessingRankId"),
)
def collective_processing_rank_id(
    dst: _RegisterDst, iteration_id: _Step, replica_group: Ranks, channel_id: Int = 0, name: Name = None
) -> None:
    """Put the number of the rank whose data a step of a ring works on into a register."""


@collective_processing_rank_id.body
def _(a: Any, x: Arrays) -> None:
    members = members_of(a.replica_group, x, "collective_permute_implicit_current_processing_rank_id")
    step = x.read_register(a.iteration_id)
    x.write_register(a.dst, members[(members.index(x.ranks()[0]) - step) % len(members)])


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int | VirtualRegister, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """A register with the number of the rank whose data is worked on in one step of a ring.

    Step 0 works on the rank's own data; each further step on data of the next predecessor.

    Args:
        iteration_id: the step, from 0.
        replica_group, channel_id: of the `collective_permute_implicit` that moves the data.
        name: of the instruction.
    """
    register = current_sink("nki.collectives.collective_permute_implicit_current_processing_rank_id").register()
    collective_processing_rank_id(register, iteration_id, replica_group, channel_id, name)
    return register
