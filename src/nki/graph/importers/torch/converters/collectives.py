"""PyTorch's functional collectives: what DTensor, FSDP and `torch.distributed` are in a graph.

Their groups are named; the ranks of a group are those of the process that compiles. A collective is done when it has
its result, so `wait_tensor` has nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from nki.graph.importers.torch.builder import Builder, combiner
from nki.graph.importers.torch.table import Call, converts, refused
from nki.graph.ir import TensorType, Value

_REDUCTIONS = {"sum": "add", "avg": "add", "max": "maximum", "min": "minimum", "product": "multiply"}


def _ranks(group: str) -> tuple[int, ...]:
    """The ranks of a group in its order, as they count in the whole launch."""
    return tuple(dist.get_process_group_ranks(_resolve_process_group(group)))


def _reduction(b: Builder, call: Call, name: str) -> str:
    found = _REDUCTIONS.get(name.lower())
    if found is None:
        raise refused(b, call, f"the reduction {name!r}", f"reduce with one of {', '.join(_REDUCTIONS)}")
    return found


def _reduced(
    b: Builder, call: Call, kind: str, x: Value, name: str, shape: Sequence[int], group: str, dim: int | None
) -> Value:
    """A collective that reduces; a mean is a sum, divided by the number of ranks."""
    ranks = _ranks(group)
    reduction = _reduction(b, call, name)
    attributes = {"replica_groups": (ranks,)} | ({} if dim is None else {"scatter_dimension": dim})
    regions = (combiner(reduction, x.type.dtype, b.location),)
    made = b.emit(kind, (x,), (TensorType(tuple(shape), x.type.dtype),), attributes, regions)[0]
    return b.divide(made, float(len(ranks))) if name.lower() == "avg" else made


@converts("_c10d_functional.all_reduce.default")
def _all_reduce(b: Builder, call: Call, x: Value, name: str, group: str) -> Value:
    return _reduced(b, call, "all_reduce", x, name, x.type.shape, group, None)


@converts("_c10d_functional.all_reduce_coalesced.default")
def _all_reduces(b: Builder, call: Call, xs: Sequence[Value], name: str, group: str) -> list[Value]:
    return [_all_reduce(b, call, x, name, group) for x in xs]


@converts("_c10d_functional.reduce_scatter_tensor.default")
def _reduce_scatter(b: Builder, call: Call, x: Value, name: str, size: int, group: str) -> Value:
    shape = (x.type.shape[0] // size, *x.type.shape[1:])
    return _reduced(b, call, "reduce_scatter", x, name, shape, group, 0)


@converts("_c10d_functional.reduce_scatter_tensor_coalesced.default")
def _reduce_scatters(b: Builder, call: Call, xs: Sequence[Value], name: str, size: int, group: str) -> list[Value]:
    return [_reduce_scatter(b, call, x, name, size, group) for x in xs]


@converts("_c10d_functional.all_gather_into_tensor.default")
def _all_gather(b: Builder, call: Call, x: Value, size: int, group: str) -> Value:
    kind = TensorType((x.type.shape[0] * size, *x.type.shape[1:]), x.type.dtype)
    return b.one("all_gather", (x,), kind, replica_groups=(_ranks(group),), all_gather_dim=0)


@converts("_c10d_functional.all_gather_into_tensor_coalesced.default")
def _all_gathers(b: Builder, call: Call, xs: Sequence[Value], size: int, group: str) -> list[Value]:
    return [_all_gather(b, call, x, size, group) for x in xs]


@converts("_c10d_functional.all_to_all_single.default")
def _all_to_all(b: Builder, call: Call, x: Value, made: Sequence[int], sent: Sequence[int], group: str) -> Value:
    ranks = _ranks(group)
    step = _step(made, sent, x.type.shape[0], group)
    if step is not None:
        pairs = tuple((rank, ranks[(place + step) % len(ranks)]) for place, rank in enumerate(ranks))
        return b.one("collective_permute", (x,), x.type, source_target_pairs=pairs)
    if len({*made, *sent}) > 1 or x.type.shape[0] % len(ranks):
        reason = f"it sends parts of {list(sent)} rows, and gets parts of {list(made)}"
        raise refused(b, call, reason, "make all parts equally long, or send everything along a ring", x)
    where = {"split_dimension": 0, "concat_dimension": 0, "split_count": len(ranks)}
    return b.one("all_to_all", (x,), x.type, replica_groups=(ranks,), **where)


def _step(made: Sequence[int], sent: Sequence[int], rows: int, group: str) -> int | None:
    """How far along the ring of its group this rank sends everything, if it gets everything from as far behind.

    That is how `permute_tensor` spells a ring. A rank sees its own part of it alone; where the others do something
    else, the collectives of their programs do not fit together, which is an error when they meet.
    """
    whole = [0] * (len(sent) - 1) + [rows]
    if not rows or sorted(sent) != whole or sorted(made) != whole:
        return None
    place = dist.get_rank(_resolve_process_group(group))
    ahead, behind = sent.index(rows) - place, place - made.index(rows)
    return ahead % len(sent) if (ahead - behind) % len(sent) == 0 else None


@converts("_c10d_functional.broadcast.default")
def _broadcast(b: Builder, call: Call, x: Value, source: int, group: str) -> Value:
    """From the rank whose place in the group is `source`."""
    ranks = _ranks(group)
    return b.one("collective_broadcast", (x,), x.type, replica_groups=((*ranks[source:], *ranks[:source]),))


@converts("_c10d_functional.wait_tensor.default")
def _wait(b: Builder, call: Call, x: Value) -> Value:
    return x
