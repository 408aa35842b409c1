"""Operands, rules and helpers that all collectives have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import prod
from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import DType, int32, uint32
from nki.core.errors import LaunchError
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import round_to, to_f32
from nki.core.tensor import View, contiguous_strides
from nki.ranks.protocol import Brought, listed
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.operand import DMA_REACHABLE, HBM, Operand
from nki.spec.replica_group import ReplicaGroup
from nki.spec.rule import Rule

SOURCE = "nki/api/nki/collectives"
ENGINES = (Engine.dma,)
"""Collectives are carried out by DMA, which the collective-communication cores direct."""

_REDUCTIONS = ("add", "minimum", "maximum")

Ranks = Annotated[ReplicaGroup, Operand("ranks")]
Priority = Annotated["int | None", Operand("int")]


def _tensors(kind: Any, regions: Any, *, written: bool, partial: bool = False) -> Operand:
    return Operand(kind, reads=not written, writes=written, regions=regions, engine_access=False, partial=partial)


Sources = Annotated[list[NkiTensor], _tensors("tensors", DMA_REACHABLE, written=False)]
Destinations = Annotated[list[NkiTensor], _tensors("tensors", DMA_REACHABLE, written=True)]
HbmSources = Annotated[list[NkiTensor], _tensors("tensors", HBM, written=False)]
HbmDestinations = Annotated[list[NkiTensor], _tensors("tensors", HBM, written=True)]
SomeHbmDestinations = Annotated[list[NkiTensor], _tensors("tensors", HBM, written=True, partial=True)]
"""Destinations of which elements, or all, may stay as they were."""

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


def members_of(groups: Sequence[Sequence[int]], x: Arrays, label: str) -> tuple[int, ...]:
    """The ranks of the list that this rank is in.

    Raises:
        LaunchError: ``collective.ranks``: the launch does not have all of these ranks, or no list names this one.
    """
    number = check_ranks(groups, x, label)
    found = [tuple(ranks) for ranks in groups if number in ranks]
    if not found:
        raise LaunchError(
            "collective.ranks",
            f"rank {number} calls {label}, but replica_group is {[list(ranks) for ranks in groups]}",
            rule="a rank that takes part in a collective is in one of the lists of its replica group",
            source=f"{SOURCE} ReplicaGroup",
            fix=f"add a list with rank {number}",
        )
    return found[0]


def check_ranks(groups: Sequence[Sequence[int]], x: Arrays, label: str) -> int:
    """Raise unless the launch has all ranks that are named; returns the number of this one.

    Raises:
        LaunchError: ``collective.ranks``.
    """
    number, count = x.ranks()
    ranks = sorted({rank for group in groups for rank in group})
    if ranks and ranks[-1] >= count:
        have = "1 rank" if count == 1 else f"{count} ranks"
        raise LaunchError(
            "collective.ranks",
            f"{label} among ranks {listed(ranks)}, but this launch has {have}",
            rule="ranks count from 0, and a plain call has one",
            source=SOURCE,
            fix="nki.runtime.run_ranks(kernel, [arguments of rank 0, arguments of rank 1, ...]) runs several; "
            "`nki check` takes any replica group",
        )
    return number


def exchanged(a: Any, x: Arrays, what: str, values: Any) -> tuple[int, Brought]:
    """What all ranks of the list bring to this call, in its order, and the place of this rank in it."""
    members = members_of(a.replica_group, x, what)
    found = x.together(members, (what, *_kinds(a)), values)
    return members.index(x.ranks()[0]), found if isinstance(found, Brought) else Brought(found)


def _kinds(a: Any) -> tuple[Any, ...]:
    """What has to be the same on all ranks."""
    views = [view for name in a._fields for view in _views(getattr(a, name))]
    return (*((view.shape, view.dtype.name) for view in views), getattr(getattr(a, "op", None), "name", ""))


def _views(value: Any) -> list[View]:
    if isinstance(value, View):
        return [value]
    return [view for item in value for view in _views(item)] if isinstance(value, list | tuple) else []


def bits_of(x: Arrays, view: View) -> np.ndarray:
    """A copy of the storage values of a tensor, in its shape."""
    return np.array(x.load_raw(view)).reshape(view.shape)


def put(x: Arrays, view: View, bits: np.ndarray) -> None:
    """Write storage values of as many elements."""
    x.store_raw(view, bits.reshape(view.shape[0], -1))


def flat_parts(view: View, start: int, count: int) -> Iterator[tuple[View, int, int]]:
    """A range of the flat elements as views of one row, each with its place in the range and its size."""
    if view.strides == contiguous_strides(view.shape):
        if count:
            yield view._replace(shape=(1, count), strides=(count, 1), offset=view.offset + start), 0, count
        return
    inner, step, at = view.shape[-1], view.strides[-1], start
    while at < start + count:
        row, first = divmod(at, inner)
        size = min(inner - first, start + count - at)
        index = np.unravel_index(row, view.shape[:-1])
        offset = (
            view.offset + first * step + sum(int(i) * stride for i, stride in zip(index, view.strides, strict=False))
        )
        yield view._replace(shape=(1, size), strides=(size * step, step), offset=offset), at - start, size
        at += size


def reduced(
    x: Arrays,
    name: str,
    parts: Sequence[np.ndarray],
    dtype: DType,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
) -> np.ndarray:
    """``part <op> part <op> ...`` in this order: 32-bit integers exactly, else in float32 with one rounding.

    Args:
        x: the arrays' arithmetic.
        name: "add", "multiply", "minimum" or "maximum".
        parts: storage values of each rank.
        dtype: of all of them, and of the result.
        before: what becomes of each part, as float32; not of 32-bit integers.
        after: what becomes of the result before it is rounded; not of 32-bit integers.
    """
    if dtype in (int32, uint32):
        return reduce(lambda first, second: x.integer(name, first, second, dtype), parts)
    function = {"add": x.add, "multiply": x.multiply, "minimum": x.minimum, "maximum": x.maximum}[name]
    wide = [to_f32(part, dtype) for part in parts]
    found = reduce(function, wide if before is None else map(before, wide))
    return round_to(found if after is None else after(found), dtype)


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
