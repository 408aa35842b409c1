"""Collectives whose sizes are known when the kernel is compiled: all_reduce, all_gather, reduce_scatter, all_to_all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from nki.collectives.shared import (
    ENGINES,
    GROUP,
    LISTS,
    MEMORY,
    PRIORITY,
    REDUCTION,
    SAME_SHAPES,
    SOURCE,
    Destinations,
    HbmDestinations,
    HbmSources,
    Priority,
    Ranks,
    Sources,
    bits_of,
    dimension,
    exchanged,
    first_dimension,
    grown,
    members_of,
    pairs,
    put,
    reduced,
    scaled_shapes,
)
from nki.core.dtypes import DType
from nki.spec.arrays import Arrays
from nki.spec.cost_collective import collective
from nki.spec.instruction import instruction
from nki.spec.operand import Int, Name, Op

Meaning = Callable[[Any, Arrays, Sequence[np.ndarray], int, DType], np.ndarray]
"""The bits of a destination, from the call, the sources of all ranks, the place of this rank and the dtype."""


def _carry_out(a: Any, x: Arrays, label: str, meaning: Meaning, same: bool = False) -> None:
    """Every pair of tensors; among one rank all of these are copies. `same`: all ranks get the same bits."""
    if len(members_of(a.replica_group, x, label)) == 1:
        for src, dst in pairs(a):
            x.dma(dst, src, False)
        return
    place, brought = exchanged(a, x, label, [bits_of(x, src) for src in a.srcs])
    for number, dst in enumerate(a.dsts):
        make = partial(meaning, a, x, [sources[number] for sources in brought], place, dst.dtype)
        put(x, dst, brought.once(number, make) if same else make())


def _all(a: Any, x: Arrays, sources: Sequence[np.ndarray], place: int, dtype: DType) -> np.ndarray:
    return reduced(x, a.op.name, sources, dtype)


def _part(a: Any, x: Arrays, sources: Sequence[np.ndarray], place: int, dtype: DType) -> np.ndarray:
    return reduced(x, a.op.name, [np.split(source, len(sources))[place] for source in sources], dtype)


def _joined(a: Any, x: Arrays, sources: Sequence[np.ndarray], place: int, dtype: DType) -> np.ndarray:
    return np.concatenate(sources, axis=a.collective_dim)


def _exchanged(a: Any, x: Arrays, sources: Sequence[np.ndarray], place: int, dtype: DType) -> np.ndarray:
    return np.concatenate([np.split(source, len(sources))[place] for source in sources])


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=[GROUP, LISTS, MEMORY, SAME_SHAPES, REDUCTION, PRIORITY],
    steps=collective("AllReduce", "all_reduce", "srcs"),
    effects=("ranks",),
)
def all_reduce(
    srcs: Sources,
    dsts: Destinations,
    replica_group: Ranks,
    op: Op,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Every rank gets the reduction of the sources of all ranks of its list.

    Args:
        srcs, dsts: equally many tensors in HBM, or one two-dimensional tensor each in SBUF; shapes and dtypes equal.
        replica_group: which ranks reduce together.
        op: nl.add, nl.minimum or nl.maximum.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@all_reduce.body
def _(a: Any, x: Arrays) -> None:
    _carry_out(a, x, "all_reduce", _all, same=True)


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=[
        GROUP,
        LISTS,
        MEMORY,
        dimension(
            "collective_dim is 0 for tensors in HBM, 0 or 1 in SBUF",
            lambda a: a.collective_dim in ((0, 1) if a.srcs[0].on_chip else (0,)),
        ),
        scaled_shapes(
            "dst is src, times the number of ranks in collective_dim",
            lambda src, dst, dim, ranks: dst.shape == grown(src, dim, ranks),
        ),
        PRIORITY,
    ],
    steps=collective("AllGather", "all_gather", "srcs"),
    effects=("ranks",),
)
def all_gather(
    srcs: Sources,
    dsts: Destinations,
    replica_group: Ranks,
    collective_dim: Int,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Every rank gets the sources of all ranks of its list, one behind the other in the order of the list.

    Args:
        srcs, dsts: equally many tensors in HBM, or one two-dimensional tensor each in SBUF; dtypes equal.
        replica_group: which ranks gather together.
        collective_dim: dimension in which the parts follow each other: 0; in SBUF, the free dimension 1 as well.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@all_gather.body
def _(a: Any, x: Arrays) -> None:
    _carry_out(a, x, "all_gather", _joined, same=True)


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=[
        GROUP,
        LISTS,
        MEMORY,
        dimension("collective_dim is 0", first_dimension),
        scaled_shapes(
            "src is dst, times the number of ranks in collective_dim",
            lambda src, dst, dim, ranks: src.shape == grown(dst, dim, ranks),
        ),
        REDUCTION,
        PRIORITY,
    ],
    steps=collective("ReduceScatter", "reduce_scatter", "srcs"),
    effects=("ranks",),
)
def reduce_scatter(
    srcs: Sources,
    dsts: Destinations,
    replica_group: Ranks,
    collective_dim: Int,
    op: Op,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """The sources of all ranks are reduced, and each rank gets the part that its place in the list names.

    Args:
        srcs, dsts: equally many tensors in HBM, or one two-dimensional tensor each in SBUF; dtypes equal.
        replica_group: which ranks reduce together.
        collective_dim: dimension in which the result is split; 0.
        op: nl.add, nl.minimum or nl.maximum.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@reduce_scatter.body
def _(a: Any, x: Arrays) -> None:
    _carry_out(a, x, "reduce_scatter", _part)


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=[
        GROUP,
        LISTS,
        dimension("collective_dim is 0", first_dimension),
        scaled_shapes(
            "dst has the shape of src, whose collective_dim is a multiple of the number of ranks",
            lambda src, dst, dim, ranks: src.shape == dst.shape and src.shape[dim] % ranks == 0,
        ),
        PRIORITY,
    ],
    steps=collective("AllToAll", "all_to_all", "srcs"),
    effects=("ranks",),
)
def all_to_all(
    srcs: HbmSources,
    dsts: HbmDestinations,
    replica_group: Ranks,
    collective_dim: Int,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Each rank sends the i-th part of its source to the i-th rank of its list, and gets one part from every rank.

    Args:
        srcs, dsts: equally many tensors in HBM; shapes and dtypes equal.
        replica_group: which ranks exchange parts.
        collective_dim: dimension in which sources are split and results follow each other; 0.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@all_to_all.body
def _(a: Any, x: Arrays) -> None:
    _carry_out(a, x, "all_to_all", _exchanged)
