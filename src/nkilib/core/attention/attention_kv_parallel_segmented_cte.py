"""Attention for prefill over a cache of blocks that several ranks share: queries go to the keys, and results come back.

Every rank has some heads of queries, and some keys of all heads. The queries of all ranks are gathered; each rank
computes them over its own keys, as `attention_segmented_cte` does; results go back to the rank of the queries, which
adds those of all ranks as in flash attention.

Keys of the ranks follow each other, or the ranks have blocks in turns: rank r of n has the blocks r, r + n, r + 2n, ...
of the sequence. Either way the keys of a rank that a query sees are its first ones, up to a number that is computed
from the position of the query, and with a window from another number on.

Layouts: q (heads, queries, d); caches (blocks, heads_kv, block size, d). bfloat16, float16 or float32 come in; products
are of bfloat16, sums are float32.

Limits: those of `attention_segmented_cte`; positions up to 2**22.

Engines: Vector and Scalar bound it, because what a query sees depends on the call's tensors, so that scores are masked
one by one; Tensor multiplies and turns weights. Two exchanges, of queries before and of results after, are not hidden.

Source: attention-kv-parallel-segmented-cte.rst of the published library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Call
from nkilib.core.attention.cte.call import plan_of
from nkilib.core.attention.cte.checks import DTYPES
from nkilib.core.attention.cte.operands import TILE, Segment
from nkilib.core.attention.cte.partial import Partial
from nkilib.core.attention.cte.results import put
from nkilib.core.attention.cte.sight import Limits, Sight
from nkilib.core.attention.cte.work import Share
from nkilib.core.attention.segmented.cache import cache_of
from nkilib.core.attention.segmented.shard import Distribution, Shard


@nki.jit
def attention_kv_parallel_segmented_cte(
    q: nl.NkiTensor,
    k_cache: nl.NkiTensor,
    v_cache: nl.NkiTensor,
    block_tables: nl.NkiTensor,
    kvp_q_offset: nl.NkiTensor,
    replica_groups: ReplicaGroup,
    group_size: int,
    block_size: int,
    seg_size: int,
    scale: float = 1.0,
    global_q_offset: int = 0,
    tp_out: bool = False,
    sliding_window: int = 0,
    kvp_rank_id: nl.NkiTensor | None = None,
    kvp_group_size: int = 0,
    apc_mode: bool = False,
    valid_num_prior_tokens: nl.NkiTensor | None = None,
) -> nl.NkiTensor:
    """Attention of this rank's heads of queries over the keys of all ranks.

    Args:
        q: (heads, queries, d).
        k_cache, v_cache: (blocks, heads_kv, block_size, d), this rank's keys.
        block_tables: (1, blocks of the sequence) int32, numbers of this rank's blocks.
        kvp_q_offset: (1, 1) int32, position of the first query, counted from this rank's first key; with
            `kvp_group_size` from that of the sequence.
        replica_groups: ranks that exchange, in the order of their keys.
        group_size: ranks of a list.
        block_size: keys of a block.
        seg_size: keys that are in SBUF at once, a multiple of `block_size`.
        scale: of the scores, positive.
        global_q_offset: position of the first query in the sequence; `kvp_q_offset` says it here.
        tp_out: the result is (heads, d, queries), else (heads, queries, d).
        sliding_window: a query sees its own position and so many less one before it; 0 for all.
        kvp_rank_id: (1, 1) int32, place of this rank among those that have blocks in turns.
        kvp_group_size: ranks that have blocks in turns; 0 if the keys of ranks follow each other.
        apc_mode: the prefix is only known on the device, as it is here in any case.
        valid_num_prior_tokens: (1, 1), with `apc_mode`; `kvp_q_offset` says it here.

    Returns:
        The result in the dtype of `q`.

    Raises:
        KernelLimit: see `_check`.
    """
    sizes = _check(locals())
    heads, queries, d = sizes["heads"], sizes["queries"], sizes["d"]
    total, length = heads * group_size, block_tables.shape[1] * block_size
    cache = cache_of(k_cache, v_cache, block_tables, (0, seg_size + TILE), seg_size)
    rank = None if kvp_rank_id is None else nisa.scalar_load(st.load(kvp_rank_id))
    offset = nisa.scalar_load(st.load(kvp_q_offset))
    has = Distribution(offset, kvp_group_size, rank, block_size, sliding_window, length)
    tiles = st.ceil_div(queries, TILE)
    shapes = (total, queries, d), (total, TILE, tiles), (total, TILE, tiles)
    out, added, sums = (nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm) for shape in shapes)
    call = Call(
        q=_gathered(q, group_size, replica_groups),
        out=out,
        neg_max=added,
        sums=sums,
        sink=None,
        bias=None,
        segments=(Segment(None, cache.values.reshape((1, *cache.values.shape)), length, True, True, 0),),
        sight=Sight(True, 0, False, Limits(), Limits(*has.limits(queries))),
        scale=scale,
        group=total // sizes["heads_kv"],
        rows=True,
        columns=False,
        normalized=False,
        maxima=False,
        plan=plan_of((queries, length, 0, d), None),
    )
    Shard(call, cache, has.last(queries), seg_size, total).compute()
    result = st.result((heads, d, queries) if tp_out else (heads, queries, d), q.dtype)
    _merge(q, [_returned(each, group_size, replica_groups) for each in (out, added, sums)], result, tp_out, call)
    return result


def _gathered(q: Any, ranks: int, group: ReplicaGroup) -> Any:
    """Queries of all ranks, (ranks * heads, queries, d)."""
    sent = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.private_hbm)
    found = nl.ndarray((ranks * q.shape[0], *q.shape[1:]), dtype=q.dtype, buffer=nl.private_hbm)
    st.copy(sent, q)
    ncc.all_gather(srcs=[sent], dsts=[found], replica_group=group, collective_dim=0)
    return found


def _returned(made: Any, ranks: int, group: ReplicaGroup) -> Any:
    """What all ranks computed of this rank's heads, (ranks, heads, ...)."""
    if nl.num_programs(0) > 1:
        nisa.core_barrier(made, (0, 1))
    found = nl.ndarray(made.shape, dtype=made.dtype, buffer=nl.private_hbm)
    ncc.all_to_all(srcs=[made], dsts=[found], replica_group=group, collective_dim=0)
    return found.reshape((ranks, made.shape[0] // ranks, *made.shape[1:]))


def _merge(q: Any, made: list[Any], result: Any, columns: bool, call: Call) -> None:
    """Add the results of all ranks."""
    own = Call(**{**vars(call), "q": q, "out": result, "columns": columns})
    share = Share(own, TILE)
    partials = [Partial(share, *(each[rank] for each in made)) for rank in range(made[0].shape[0])]
    for block in partials[0].blocks():
        sums = partials[0].of(block)
        for other in partials[1:]:
            sums = sums.plus(other.of(block))
        put(block, sums.divided(result.dtype))


def _check(a: Mapping[str, Any]) -> dict[str, int]:
    """Check the arguments of a call, by name.

    Raises:
        KernelLimit: a code of `nkilib.limits`, with the numbers.
    """
    kernel = "attention_kv_parallel_segmented_cte"
    limits.generation(kernel, 3, "range_select hides scores of keys that a query does not see")
    sizes = limits.shape("q", a["q"], ("heads", "queries", "d"), {"block_size": a["block_size"]})
    for name in ("k_cache", "v_cache"):
        limits.shape(name, a[name], ("blocks", "heads_kv", "block_size", "d"), sizes)
    limits.shape("block_tables", a["block_tables"], (1, "blocks of the sequence"), sizes)
    limits.between("d", sizes["d"], 1, 128, "the products contract over it on 128 partitions")
    rows = sizes["blocks"] * sizes["heads_kv"] * sizes["block_size"]
    limits.between("rows of the cache", rows, 1, 1 << 24, "numbers of rows are float32 before they are rounded")
    limits.between("group_size", a["group_size"], 1, 1 << 16)
    total = sizes["heads"] * a["group_size"]
    limits.multiple("heads of all ranks", total, sizes["heads_kv"], "each head of keys serves as many of queries")
    limits.same_dtype(k_cache=a["k_cache"], v_cache=a["v_cache"])
    for name in ("q", "k_cache"):
        limits.dtype(name, a[name], DTYPES)
    limits.between("seg_size", a["seg_size"], 1, 8192, "SBUF has room for so many keys and values")
    limits.multiple("seg_size", a["seg_size"], a["block_size"], "segments begin with a block")
    scale, window = a["scale"], a["sliding_window"]
    limits.need(scale > 0, "scale", scale, "scale is positive", "negate q, and pass a positive scale")
    limits.need(window >= 0, "sliding_window", window, "sliding_window is not negative", "pass 0 for all keys")
    _check_ranks(a, kernel)
    return sizes


def _check_ranks(a: Mapping[str, Any], kernel: str) -> None:
    for name in ("block_tables", "kvp_q_offset", "kvp_rank_id", "valid_num_prior_tokens"):
        if a[name] is not None:
            limits.dtype(name, a[name], (nl.int32, nl.uint32))
            if name != "block_tables":
                limits.shape(name, a[name], (1, 1))
    limits.between("kvp_group_size", a["kvp_group_size"], 0, 1 << 16)
    keys = a["block_tables"].shape[1] * a["block_size"] * max(1, a["kvp_group_size"])
    limits.between("keys of all ranks", keys, 1, 1 << 22, "positions are divided in float32")
    limits.belonging(kernel, "kvp_rank_id", a["kvp_rank_id"], a["kvp_group_size"] > 0, "kvp_group_size")
    limits.belonging(kernel, "valid_num_prior_tokens", a["valid_num_prior_tokens"], a["apc_mode"], "apc_mode")
