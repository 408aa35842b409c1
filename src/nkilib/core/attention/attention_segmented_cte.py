"""Attention for prefill over a cache of blocks: a prefix of any length, and the keys of the queries after it.

Math, for the queries q of a head at the positions prior, prior + 1, ..., and the keys k and values v that the table of
blocks puts in order::

    scores = scale * q @ k.T                             of the keys up to a query's position
    out = exp(scores - m) @ v / (sum(exp(scores - m)) + exp(sink - m))          for any m

Layouts: q (batch, queries, d) or (batch, d, queries), where the batch is the heads of queries of all sequences; caches
(blocks, heads_kv, block size, d). bfloat16, float16 or float32 come in; products are of bfloat16, sums are float32.

Limits: d <= 128; any number of queries and any size of blocks; 2**24 rows of the cache; Trainium2 and later.

Engines: a loop takes as many segments of the prefix as there are. DMA gathers rows of a segment by the table, and the
Tensor engine turns the keys, once for all heads of queries that share them; then it is `attention_cte`: Scalar and
Vector make the weights with nothing taken off, the Tensor engine bounds it. If the sums tell that a weight left the
range of float32, all is computed again with maxima, which is the way at once where a window makes the prefix ragged.

Source: attention-segmented-cte.rst of the published library; Kwon et al., "PagedAttention", 2023, for blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Call
from nkilib.core.attention.cte.call import plan_of
from nkilib.core.attention.cte.checks import DTYPES
from nkilib.core.attention.cte.operands import TILE, Segment
from nkilib.core.attention.segmented.cache import cache_of
from nkilib.core.attention.segmented.order import Segments, sight_of


@nki.jit
def attention_segmented_cte(
    q: nl.NkiTensor,
    k_cache: nl.NkiTensor,
    v_cache: nl.NkiTensor,
    block_tables: nl.NkiTensor,
    prior_tokens: nl.NkiTensor,
    block_size: int,
    prior_seg_size: int,
    scale: float = 1.0,
    tp_q: bool = True,
    tp_out: bool = False,
    sliding_window: int | None = None,
    sink: nl.NkiTensor | None = None,
    num_q_heads: int = 1,
    k_pre_transposed: bool = False,
    fp8_packed: bool = False,
    k_scale: nl.NkiTensor | None = None,
    v_scale: nl.NkiTensor | None = None,
    kvp_q_offset: nl.NkiTensor | None = None,
    kvp_rank_id: nl.NkiTensor | None = None,
    kvp_group_size: int = 0,
    kvp_cp_offset_int: int = 0,
    kvp_seg_block_offset_int: int = 0,
    kvp_prior_load_blocks: int = 0,
    kvp_prior_fully_visible: bool = False,
    *,
    tiles: Mapping[str, int] | None = None,
) -> Any:
    """Attention of new queries over a prefix and their own keys, all of which are in the cache.

    Args:
        q: (batch, queries, d) with `tp_q`, else (batch, d, queries); `num_q_heads` of each sequence follow each other.
        k_cache, v_cache: (blocks, heads_kv, block_size, d).
        block_tables: (sequences, blocks of a sequence) int32, numbers of blocks: those of the prefix, then those of the
            queries' keys. Blocks behind are not looked at, and may be -1.
        prior_tokens: (1, 1) int32, keys of the prefix, a multiple of `block_size`, of all sequences.
        block_size: keys of a block.
        prior_seg_size: keys of the prefix that are in SBUF at once, a multiple of `block_size`.
        scale: of the scores, positive.
        tp_out: the result is (batch, d, queries), else (batch, queries, d).
        sliding_window: a query sees its own position and so many less one before it; None or 0 for all.
        sink: (batch, 1), a score that counts in the sums of each head without a value of its own.
        num_q_heads: heads of queries of a sequence.
        k_scale, v_scale: (128, 1) float32, of which the first d are what keys and values are multiplied by.
        tiles: "ahead" and "vector" as in `attention_cte`, "section" of the queries' own keys.

    Returns:
        The result in the dtype of `q`.

    Raises:
        KernelLimit: see `_check`.
    """
    sizes = _check(locals())
    queries, d, window = sizes["queries"], sizes["d"], sliding_window or 0
    ahead = st.ceil_div(max(0, window - 1), TILE) * TILE
    room = ahead, max(prior_seg_size, queries) + TILE
    cache = cache_of(k_cache, v_cache, block_tables, room, prior_seg_size)
    prior = nisa.scalar_load(st.load(prior_tokens)).minimum(block_tables.shape[1] * block_size)
    values = cache.values.reshape((1, *cache.values.shape))
    own = Segment(None, values, ahead + queries, True, ahead > 0, 0, -ahead if ahead else None)
    call = Call(
        q=q,
        out=st.result((sizes["batch"], d, queries) if tp_out else (sizes["batch"], queries, d), q.dtype),
        neg_max=None,
        sums=None,
        sink=sink,
        bias=None,
        segments=(own,),
        sight=sight_of(window, ahead, queries, prior),
        scale=scale,
        group=num_q_heads // sizes["heads_kv"],
        rows=tp_q,
        columns=tp_out,
        normalized=True,
        maxima=False,
        plan=plan_of((queries, queries, prior_seg_size, d), tiles),
        stretch=None if v_scale is None else st.load_repeated(v_scale[0:d], TILE, nl.float32),
    )
    keys = None if k_scale is None else st.load(k_scale[0:d], nl.float32)
    Segments(call, cache, prior, prior_seg_size, num_q_heads, keys).compute()
    return call.out


def _check(a: Mapping[str, Any]) -> dict[str, int]:
    """Check the arguments of a call, by name.

    Raises:
        KernelLimit: a code of `nkilib.limits`, with the numbers.
    """
    limits.generation("attention_segmented_cte", 3, "range_select hides scores of keys that a query does not see")
    sizes = {"block_size": a["block_size"]}
    limits.shape("q", a["q"], ("batch", "queries", "d") if a["tp_q"] else ("batch", "d", "queries"), sizes)
    options = [name for name in a if name.startswith("kvp_")] + ["k_pre_transposed", "fp8_packed"]
    given = {name: None if a[name] is False or a[name] == 0 else a[name] for name in options}
    limits.not_built(given, "attention_segmented_cte")
    for name in ("k_cache", "v_cache"):
        limits.shape(name, a[name], ("blocks", "heads_kv", "block_size", "d"), sizes)
    limits.shape("block_tables", a["block_tables"], ("sequences", "blocks of a sequence"), sizes)
    limits.dtype("block_tables", a["block_tables"], (nl.int32, nl.uint32))
    limits.between("d", sizes["d"], 1, 128, "the products contract over it on 128 partitions")
    limits.between("queries", sizes["queries"], 1, 1 << 24, "positions are float32")
    rows = sizes["blocks"] * sizes["heads_kv"] * sizes["block_size"]
    limits.between("rows of the cache", rows, 1, 1 << 24, "numbers of rows are float32 before they are rounded")
    limits.need(
        sizes["batch"] == sizes["sequences"] * a["num_q_heads"],
        "num_q_heads",
        a["num_q_heads"],
        f"the batch, {sizes['batch']}, has num_q_heads heads of each of {sizes['sequences']} sequences",
        "pass the heads of queries of a sequence",
    )
    limits.multiple("num_q_heads", a["num_q_heads"], sizes["heads_kv"], "each head of keys serves as many of queries")
    _check_options(a, sizes)
    return sizes


def _check_options(a: Mapping[str, Any], sizes: dict[str, int]) -> None:
    limits.same_dtype(k_cache=a["k_cache"], v_cache=a["v_cache"])
    for name in ("q", "k_cache"):
        limits.dtype(name, a[name], DTYPES)
    segment, scale, window = a["prior_seg_size"], a["scale"], a["sliding_window"]
    limits.between("prior_seg_size", segment, 1, _SEGMENT, "SBUF has room for so many keys and values")
    limits.multiple("prior_seg_size", segment, a["block_size"], "segments begin with a block")
    limits.shape("prior_tokens", a["prior_tokens"], (1, 1))
    limits.dtype("prior_tokens", a["prior_tokens"], (nl.int32, nl.uint32))
    limits.need(scale > 0, "scale", scale, "scale is positive", "negate q, and pass a positive scale")
    limits.need((window or 0) >= 0, "sliding_window", window, "sliding_window is None or not negative", "pass None")
    if a["sink"] is not None:
        limits.shape("sink", a["sink"], ("batch", 1), sizes)
    for name in ("k_scale", "v_scale"):
        if a[name] is not None:
            limits.shape(name, a[name], (128, 1))


_SEGMENT = 8192
"""Keys of the prefix in SBUF at once, at most."""
