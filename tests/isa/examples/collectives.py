"""Examples of the collectives: what they mean among one rank, and what each rule refuses for any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki import collectives as ncc
from nki.core.dtypes import bfloat16, uint32
from nki.isa.register import register_store
from tests.isa.examples.dma import V3, normal
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store

ALONE = ncc.ReplicaGroup([[0]])
PAIR = ncc.ReplicaGroup([[0, 1]])
FOUR = ncc.ReplicaGroup([[0, 1, 2, 3]])
OVERLAP = ncc.ReplicaGroup([[0, 1], [1, 2]])
UNEQUAL = ncc.ReplicaGroup([[0, 1], [2]])
LISTS: dict[str, dict[str, Any]] = {
    "all_reduce": {"op": nl.add},
    "all_gather": {"collective_dim": 0},
    "reduce_scatter": {"collective_dim": 0, "op": nl.add},
    "all_to_all": {"collective_dim": 0},
}
ON_CHIP = ("all_reduce", "all_gather", "reduce_scatter")


def same(a: Any) -> Any:
    return a


def hbm(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def copying(name: str, count: int = 1, group: Any = ALONE, **more: Any) -> Callable[..., Any]:
    """A collective from HBM to HBM whose results have the shapes of its sources."""

    def kernel(*arrays: Any) -> Any:
        results = [hbm(a.shape, a.dtype) for a in arrays]
        getattr(ncc, name)(list(arrays), results, group, **{**LISTS.get(name, {}), **more})
        return results[0] if count == 1 else tuple(results)

    return kernel


def in_sbuf(name: str, **more: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        result = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        getattr(ncc, name)([load(a)], [result], ALONE, **{**LISTS[name], **more})
        return store(result)

    return kernel


def onto(name: str, shape: tuple[int, ...], dtype: Any = None, group: Any = PAIR, **more: Any) -> Callable[[Any], Any]:
    """A collective into a result of another shape or dtype."""

    def kernel(a: Any) -> Any:
        result = hbm(shape, dtype or a.dtype)
        getattr(ncc, name)([a], [result], group, **{**LISTS.get(name, {}), **more})
        return result

    return kernel


def mixed(name: str) -> Callable[[Any], Any]:
    """From SBUF to HBM."""

    def kernel(a: Any) -> Any:
        result = hbm(a.shape)
        getattr(ncc, name)([load(a)], [result], ALONE, **LISTS[name])
        return result

    return kernel


def uneven(name: str, **more: Any) -> Callable[[Any], Any]:
    """Two sources, one result."""

    def kernel(a: Any) -> Any:
        result = hbm(a.shape)
        getattr(ncc, name)([a, a], [result], **{**LISTS.get(name, {}), **more})
        return result

    return kernel


def broken_lists() -> list[Any]:
    one, found = normal((8, 6)), []
    for name in LISTS:
        found += [
            Breaks(f"{name}.group", copying(name, group=OVERLAP), one),
            Breaks(f"{name}.group", copying(name, group=UNEQUAL), one),
            Breaks(f"{name}.lists", uneven(name, replica_group=ALONE), one),
            Breaks(f"{name}.lists", onto(name, (8, 6), bfloat16, group=ALONE), one),
            Breaks(f"{name}.priority", copying(name, priority=0), one),
            Breaks(f"{name}.priority", copying(name, priority=4), one, "trn3"),
            Breaks(f"{name}.shapes", onto(name, (8, 7), group=ALONE), one),
        ]
    found += [
        Breaks(f"{name}.dimension", copying(name, collective_dim=1), one) for name in LISTS if name != "all_reduce"
    ]
    found += [Breaks(f"{name}.memory", mixed(name), one) for name in ON_CHIP]
    found += [Breaks(f"{name}.op", copying(name, op=nl.multiply), one) for name in ("all_reduce", "reduce_scatter")]
    found += [
        Breaks("all_gather.shapes", onto("all_gather", (8, 6)), one),
        Breaks("all_gather.dimension", in_sbuf("all_gather", collective_dim=2), one),
        Breaks("reduce_scatter.shapes", onto("reduce_scatter", (8, 6)), one),
        Breaks("all_to_all.shapes", onto("all_to_all", (7, 6)), normal((7, 6))),
    ]
    return found


def legal_lists() -> list[Any]:
    found: list[Any] = []
    for name in LISTS:
        found += [
            Legal(name, copying(name), normal((8, 6)), same),
            Legal(name, copying(name, 2), normal((8, 6), (4, 3)), lambda a, b: (a, b), V3),
            Legal(name, copying(name, priority=3), normal((8, 6)), same, ("trn3",)),
        ]
    found += [Legal(name, in_sbuf(name), normal((8, 6)), same, V3) for name in ON_CHIP]
    found.append(Legal("all_gather", in_sbuf("all_gather", collective_dim=1), normal((8, 6)), same, V3))
    return found


# --- permutes


def permute(pairs: Any, shape: tuple[int, ...] = (8, 6), dtype: Any = None, **more: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        result = hbm(shape, dtype or a.dtype)
        nl.store(result, nl.zeros(shape, dtype or a.dtype))
        ncc.collective_permute([a], [result], pairs, **more)
        return result

    return kernel


def ring(channels: int, region: Any = nl.shared_hbm, shape: Any = None, **more: Any) -> Callable[[Any], Any]:
    """A step of a ring, each channel with a row of its own."""

    def kernel(a: Any) -> Any:
        rows = [a[i : i + 1, :] for i in range(channels)]
        rows = [load(row) for row in rows] if region is nl.sbuf else rows
        results = [nl.ndarray(shape or row.shape, row.dtype, buffer=region) for row in rows]
        options = {"replica_group": ALONE, "channel_ids": list(range(channels)), **more}
        ncc.collective_permute_implicit([[row] for row in rows], [[r] for r in results], **options)
        return tuple(store(r) if region is nl.sbuf else r for r in results)

    return kernel


def rows(channels: int) -> Callable[[Any], Any]:
    return lambda a: tuple(a[i : i + 1] for i in range(channels))


def ring_default(a: Any) -> Any:
    result = hbm(a.shape)
    ncc.collective_permute_implicit([[a]], [[result]], ALONE)
    return result


def ring_reduce(op: Any, shape: Any = None, **more: Any) -> Callable[[Any, Any], Any]:
    def kernel(a: Any, b: Any) -> Any:
        result = hbm(shape or a.shape, a.dtype)
        options = {"replica_group": ALONE, "op": op, **more}
        ncc.collective_permute_implicit_reduce([[a]], [[b]], [[result]], **options)
        return result

    return kernel


def integers() -> tuple[Any, ...]:
    return np.array([[2**24 + 1, -5]], np.int32), np.array([[2, 7]], np.int32)


def stored(register: Any) -> Any:
    result = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    register_store(result, register)
    return store(result)


def own_rank(a: Any) -> Any:
    return stored(ncc.rank_id(name="rank"))


def processed_rank(step: int, **more: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        options = {"replica_group": ALONE, **more}
        return stored(ncc.collective_permute_implicit_current_processing_rank_id(step, **options))

    return kernel


def zero(*_: Any) -> Any:
    return np.zeros((1, 1), np.int32)


# --- sizes that are only known at run time


def table(*rows: int) -> Callable[[], tuple[Any, ...]]:
    """24 numbers, and metadata for one rank."""
    return lambda: (np.arange(24, dtype=np.float32).reshape(4, 6), np.array([[row] for row in rows], np.uint32))


def exchange(name: str = "all_to_all_v", split: bool = False, shape: Any = (3, 10), **more: Any) -> Callable[..., Any]:
    """Returns the result, over -1, and the metadata after."""

    def kernel(a: Any, metadata: Any) -> Any:
        result, after = hbm(shape, a.dtype), hbm(metadata.shape, metadata.dtype)
        nl.store(result, nl.full(shape, -1, a.dtype))
        nl.store(after, nl.load(metadata))
        options = {"replica_group": ALONE, **more}
        if split:
            handle = getattr(ncc, f"{name}_prepare")([a], [result], metadata_tensor=after, **options)
            getattr(ncc, f"{name}_trigger")(handle, name="go")
        else:
            getattr(ncc, name)([a], [result], metadata_tensor=after, **options)
        return result, after

    return kernel


def in_sbuf_metadata(a: Any, metadata: Any) -> Any:
    result = hbm((3, 10), a.dtype)
    nl.store(result, nl.full((3, 10), -1, a.dtype))
    flags = nl.ndarray((1, 3, 1), uint32, buffer=nl.sbuf)
    for i in range(3):
        nisa.dma_copy(dst=flags[:, i, :], src=metadata[i : i + 1, :])
    ncc.all_to_all_v([a], [result], ALONE, flags)
    return result


def moved(count: int, offset: int, place: int = 0) -> Any:
    result = np.full(30, -1, np.float32)
    result[place : place + count] = np.arange(24)[offset : offset + count]
    return result.reshape(3, 10)


def expected(a: Any, m: Any) -> Any:
    after = m.copy()
    after[2, 0] = m[0, 0]
    return moved(int(m[0, 0]), int(m[1, 0]), int(m[3, 0]) if len(m) == 4 else 0), after


def columns(rows: int, ranks: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (np.zeros((4, 6), np.float32), np.zeros((rows, ranks), np.uint32))


def broken_tables(name: str, run: str, ranks: Any, count: int, split: bool) -> list[Any]:
    """The rules of the collectives with metadata; `run` is the instruction that is issued first."""

    def call(**more: Any) -> Callable[..., Any]:
        return exchange(name, split, **{"replica_group": ranks, "shape": (4, 6), **more})

    good = columns(3, count)
    return [
        Breaks(f"{run}.group", call(replica_group=ncc.ReplicaGroup([list(range(count))] * 2)), good),
        Breaks(f"{run}.metadata", call(), columns(4, count)),
        Breaks(f"{run}.metadata", call(has_rdispls=True), good),
        Breaks(f"{run}.priority", call(priority=0), good),
        Breaks(f"{run}.slots", call(shape=(1, 25)), good),
        Breaks(f"{run}.single", other_dtype(name, split, ranks), good),
    ]


def other_dtype(name: str, split: bool, ranks: Any) -> Callable[..., Any]:
    def kernel(a: Any, metadata: Any) -> Any:
        result = hbm((4, 6), bfloat16)
        getattr(ncc, f"{name}_prepare" if split else name)([a], [result], ranks, metadata)
        return result

    return kernel


def four_ranks_rules(run: str, split: bool) -> list[Any]:
    return [
        Breaks(f"{run}.ranks", exchange("all_gather_v", split, replica_group=PAIR, shape=(4, 6)), columns(3, 2)),
        Breaks(
            f"{run}.rdispls",
            exchange("all_gather_v", split, replica_group=FOUR, shape=(4, 6), has_rdispls=True),
            columns(4, 4),
        ),
    ]


ONE = normal((8, 6))
TWO = normal((8, 6), (8, 6))
EXAMPLES = [
    *legal_lists(),
    *broken_lists(),
    Legal("collective_permute", permute([(0, 0)]), ONE, same),
    Legal("collective_permute", permute([]), ONE, np.zeros_like),
    Breaks("collective_permute.pairs", permute([(0, 1), (1, 1)]), ONE),
    Breaks("collective_permute.pairs", permute([(0, 1), (0, 2)]), ONE),
    Breaks("collective_permute.pairs", permute([(-1, 0)]), ONE),
    Breaks("collective_permute.shapes", permute([(0, 0)], (6, 8)), ONE),
    Breaks("collective_permute.single", permute([(0, 0)], dtype=bfloat16), ONE),
    Breaks("collective_permute.single", uneven("collective_permute", source_target_pairs=[(0, 0)]), ONE),
    Breaks("collective_permute.priority", permute([(0, 0)], priority=1), ONE),
    Legal("collective_permute_implicit", ring_default, ONE, same),
    Legal("collective_permute_implicit", ring(4), ONE, rows(4), V3),
    Legal("collective_permute_implicit", ring(2, nl.sbuf), ONE, rows(2), V3),
    Breaks("collective_permute_implicit.group", ring(1, replica_group=OVERLAP), ONE),
    Breaks("collective_permute_implicit.tensors", ring(2, shape=(1, 7)), ONE),
    Breaks("collective_permute_implicit.channels", ring(5), ONE),
    Breaks("collective_permute_implicit.channels", ring(2, channel_ids=[1, 0]), ONE),
    Breaks("collective_permute_implicit.channels", ring(2, channel_ids=[0]), ONE),
    Breaks("collective_permute_implicit.priority", ring(1, priority=0), ONE),
    Legal("collective_permute_implicit_reduce", ring_reduce(nl.add), TWO, np.add),
    Legal("collective_permute_implicit_reduce", ring_reduce(nl.minimum), TWO, np.minimum),
    Legal("collective_permute_implicit_reduce", ring_reduce(nl.maximum), integers, np.maximum),
    Legal("collective_permute_implicit_reduce", ring_reduce(nl.add), integers, np.add),
    Breaks("collective_permute_implicit_reduce.group", ring_reduce(nl.add, replica_group=UNEQUAL), TWO),
    Breaks("collective_permute_implicit_reduce.tensors", ring_reduce(nl.add, (6, 8)), TWO),
    Breaks("collective_permute_implicit_reduce.channels", ring_reduce(nl.add, channel_ids=[1]), TWO),
    Breaks("collective_permute_implicit_reduce.op", ring_reduce(nl.multiply), TWO),
    Breaks("collective_permute_implicit_reduce.priority", ring_reduce(nl.add, priority=0), TWO),
    Legal("collective_rank_id", own_rank, ONE, zero),
    Legal("collective_processing_rank_id", processed_rank(0), ONE, zero),
    Legal("collective_processing_rank_id", processed_rank(3, channel_id=1), ONE, zero),
    Breaks("collective_processing_rank_id.group", processed_rank(0, replica_group=OVERLAP), ONE),
    Breaks("collective_processing_rank_id.channel", processed_rank(0, channel_id=4), ONE),
    Legal("all_to_all_v", exchange(), table(5, 7, 99), expected),
    Legal("all_to_all_v", exchange(), table(0, 0, 99), expected),
    Legal("all_to_all_v", exchange(has_rdispls=True), table(24, 0, 0, 6), expected),
    Legal("all_to_all_v", exchange(recv_counts_known=True), table(5, 7, 99), lambda a, m: (moved(5, 7), m)),
    Legal("all_to_all_v", in_sbuf_metadata, table(6, 2, 0), lambda a, m: moved(6, 2)),
    Legal("all_to_all_v_setup", exchange(split=True), table(5, 7, 99), expected),
    Legal("all_gather_v", exchange("all_gather_v"), table(5, 7, 99), expected),
    Legal("all_gather_v_setup", exchange("all_gather_v", True), table(5, 7, 99), expected),
    *broken_tables("all_to_all_v", "all_to_all_v", PAIR, 2, False),
    *broken_tables("all_to_all_v", "all_to_all_v_setup", PAIR, 2, True),
    *broken_tables("all_gather_v", "all_gather_v", FOUR, 4, False),
    *broken_tables("all_gather_v", "all_gather_v_setup", FOUR, 4, True),
    *four_ranks_rules("all_gather_v", False),
    *four_ranks_rules("all_gather_v_setup", True),
]
