"""Operands, rules and helpers that all collectives have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Annotated, Any

from nki.core.dtypes import int32, uint32
from nki.core.errors import LaunchError
from nki.core.nki_tensor import NkiTensor
from nki.core.source import UNKNOWN
from nki.core.tensor import View
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.operand import DMA_REACHABLE, HBM, Operand
from nki.spec.ranks import ReplicaGroup
from nki.spec.rule import Rule

SOURCE = "nki/api/nki/collectives"
ENGINES = (Engine.dma,)
"""Collectives are carried out by DMA, which the collective-communication cores direct."""

_REDUCTIONS = ("add", "minimum", "maximum")

Ranks = Annotated[ReplicaGroup, Operand("ranks")]
Priority = Annotated["int | None", Operand("int")]


def _tensors(kind: Any, regions: Any, *, written: bool) -> Operand:
    return Operand(kind, reads=not written, writes=written, regions=regions, engine_access=False)


Sources = Annotated[list[NkiTensor], _tensors("tensors", DMA_REACHABLE, written=False)]
Destinations = Annotated[list[NkiTensor], _tensors("tensors", DMA_REACHABLE, written=True)]
HbmSources = Annotated[list[NkiTensor], _tensors("tensors", HBM, written=False)]
HbmDestinations = Annotated[list[NkiTensor], _tensors("tensors", HBM, written=True)]
ChannelSources = Annotated[list[list[NkiTensor]], _tensors("channels", DMA_REACHABLE, written=False)]
ChannelDestinations = Annotated[list[list[NkiTensor]], _tensors("channels", DMA_REACHABLE, written=True)]


PRIORITY = Rule(
    "priority",
    "priority is a class that the target has: {t.dma.priorities} of them, counted from 0, which is the highest",
    lambda a, t: a.priority is None or 0 <= a.priority < t.dma.priorities,
    SOURCE,
    "omit priority",
    lambda a, t: f"priority is {a.priority}, {t.name} has {t.dma.priorities} classes",
)

GROUP = Rule(
    "group",
    "the rank lists of a replica group do not overlap, and are equally long",
    lambda a, t: _proper(a.replica_group),
    f"{SOURCE} ReplicaGroup",
    "name each rank once",
    lambda a, t: f"replica_group is {[list(ranks) for ranks in a.replica_group]}",
)

REDUCTION = Rule(
    "op",
    "op is nl.add, nl.minimum or nl.maximum",
    lambda a, t: a.op.name in _REDUCTIONS,
    SOURCE,
    "use one of the three",
    lambda a, t: f"op is {a.op!r}",
)

LISTS = Rule(
    "lists",
    "srcs and dsts have equally many tensors, and each pair has one dtype",
    lambda a, t: len(a.srcs) == len(a.dsts) and all(s.dtype == d.dtype for s, d in pairs(a)),
    SOURCE,
    "pass one destination of the same dtype for each source",
    lambda a, t: f"srcs are {described(a.srcs)}; dsts are {described(a.dsts)}",
)

SINGLE = Rule(
    "single",
    "srcs and dsts have one tensor each, and both have one dtype",
    lambda a, t: len(a.srcs) == len(a.dsts) == 1 and a.srcs[0].dtype == a.dsts[0].dtype,
    SOURCE,
    "call it once for each tensor",
    lambda a, t: f"srcs are {described(a.srcs)}; dsts are {described(a.dsts)}",
)

MEMORY = Rule(
    "memory",
    "all tensors are in HBM, or there is one pair of two-dimensional tensors in SBUF",
    lambda a, t: _one_memory(a.srcs, a.dsts),
    SOURCE,
    "copy the tensors to HBM",
    lambda a, t: f"srcs are {described(a.srcs)}; dsts are {described(a.dsts)}",
)

SAME_SHAPES = Rule(
    "shapes",
    "each dst has the shape of its src",
    lambda a, t: all(s.shape == d.shape for s, d in pairs(a)),
    SOURCE,
    "reshape one of them",
    lambda a, t: f"srcs are {described(a.srcs)}; dsts are {described(a.dsts)}",
)


def scaled_shapes(sentence: str, fits: Callable[[View, View, int, int], bool]) -> Rule:
    """The shapes of a pair fit together: ``fits(src, dst, dimension, ranks)``."""
    return Rule(
        "shapes",
        sentence,
        lambda a, t: all(fits(s, d, a.collective_dim, size_of_group(a)) for s, d in pairs(a)),
        SOURCE,
        "allocate dst accordingly",
        lambda a, t: (
            f"{size_of_group(a)} ranks, srcs are {described(a.srcs)}; dsts are {described(a.dsts)}; "
            f"collective_dim is {a.collective_dim}"
        ),
    )


def dimension(sentence: str, holds: Callable[[Any], bool]) -> Rule:
    """`collective_dim` is supported."""
    return Rule(
        "dimension",
        sentence,
        lambda a, t: holds(a),
        SOURCE,
        "reshape or permute the tensors so that the dimension is 0",
        lambda a, t: f"collective_dim is {a.collective_dim}, srcs are {described(a.srcs)}",
    )


def first_dimension(a: Any) -> bool:
    """True for `collective_dim` 0."""
    return bool(a.collective_dim == 0)


def pairs(a: Any) -> list[tuple[View, View]]:
    """Each source with its destination; LISTS or SINGLE tells if one of them has none."""
    return list(zip(a.srcs, a.dsts, strict=False))


def size_of_group(a: Any) -> int:
    """Ranks that take part together."""
    return len(a.replica_group[0])


def described(views: Sequence[View]) -> str:
    """Short text for messages."""
    return ", ".join(view.describe() for view in views)


def one_rank(a: Any, label: str) -> None:
    """Raise unless the group is the one rank of a launch in this process, rank 0.

    Raises:
        LaunchError: ``collective.ranks``.
    """
    only_rank_zero(a.replica_group, label)


def only_rank_zero(groups: Sequence[Sequence[int]], label: str) -> None:
    """`one_rank` for ranks that do not come as a replica group."""
    ranks = sorted({rank for group in groups for rank in group})
    if ranks not in ([], [0]):
        raise LaunchError(
            "collective.ranks",
            f"{label} among ranks {', '.join(map(str, ranks))}, but this launch has 1 rank",
            rule="a launch in one process has one rank, whose number is 0",
            source=SOURCE,
            fix="run the kernel with ReplicaGroup([[0]]), or only check it: `nki check` takes any replica group",
            location=UNKNOWN,
        )


def combined(x: Arrays, name: str, first: View, second: View) -> Any:
    """``first <op> second``: 32-bit integers exactly, anything else in float32."""
    if first.dtype in (int32, uint32):
        return x.integer(name, x.load_raw(first), x.load_raw(second), first.dtype)
    function = {"add": x.add, "minimum": x.minimum, "maximum": x.maximum}[name]
    return function(x.load(first), x.load(second))


def _proper(groups: Sequence[Sequence[int]]) -> bool:
    ranks = [rank for group in groups for rank in group]
    return len(set(ranks)) == len(ranks) and len({len(group) for group in groups}) == 1


def _one_memory(srcs: Sequence[View], dsts: Sequence[View]) -> bool:
    views = [*srcs, *dsts]
    if not any(view.on_chip for view in views):
        return True
    return len(srcs) == len(dsts) == 1 and all(view.on_chip and view.ndim == 2 for view in views)


def elements(view: View) -> int:
    """Elements of a view."""
    return prod(view.shape)


def grown(view: View, dim: int, factor: int) -> tuple[int, ...]:
    """The shape with one dimension multiplied."""
    return tuple(size * factor if i == dim else size for i, size in enumerate(view.shape))
