"""Attention of a step of decoding: few new tokens of each sequence over the keys of its cache.

For each sequence and query head, with all heads sharing one head of keys and values::

    out = softmax(q . k) @ v        over the keys of the cache that count, the new tokens' own, and the sink

The new tokens take the place of the last ``s_active`` of the ``curr_sprior`` keys, which the cache need not have.
Queries are used as they come, or with ``fuse_rope`` turned by their positions and divided by ``sqrt(d_head)``.

Layouts: d = head size, B sequences, H query heads, S new tokens; a cache may hold more sequences and keys than are
looked at.

=================  ==========================================================================================
q                  (d, B * H * S) in SBUF, or in HBM (B, d, H, S) or (B, H, S, d)
k_active           (d, B * S) in SBUF, or in HBM (B, d, S) or (B, 1, S, d)
v_active           (B, 1, S, d)
k_prior, v_prior   (B+, 1, keys, d), keys also as (B+, 1, d, keys); paged (blocks, block length, d)
mask               (keys, B, H, S), 0 where a key does not count; with ``use_pos_id`` (S, B, H, S) of the new tokens
out                (d, B * H * S) in SBUF, or (B, H, d, S) in HBM
k_out              (d, B * S) in SBUF, or (B, 1, d, S) in HBM
=================  ==========================================================================================

Several heads of keys and values count as sequences of their own, each with the queries that share it. The rows of a
mask for a paged cache are ordered as `attention_tkg_utils` says. Dtypes: floats of 2 bytes, FP8 for the cache, or
float32 for all; scores, maxima and sums are float32. Limits: d_head, and q_head * s_active, of at most 128.

Plan: transfers of the cache bound the kernel; keys come in so that 128 of them are the stationary operand of a product
whose result has keys on partitions, and values are the stationary operand of the second product. Tensor also adds the
mask and subtracts the maximum, Vector finds maxima and sums, Scalar takes the exponential (`decode_softmax`).

Source: Dao et al., Flash-Decoding for long-context inference, 2023; Xiao et al., arXiv:2309.17453 (sinks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_tkg_utils import (
    AttnTKGConfig,
    resize_cache_block_len_for_attention_tkg_kernel,
)
from nkilib.core.attention.decode import Duty, Step, decoded, duty, swap
from nkilib.core.attention.decode_cache import Blocks, Rows, block_index
from nkilib.core.attention.decode_mask import Mask, Positions
from nkilib.core.attention.decode_softmax import BANK
from nkilib.core.embeddings.rope import RoPE_sbuf
from nkilib.core.utils.allocator import SbufManager
from nkilib.core.utils.common_types import DtypeMode
from nkilib.core.utils.kernel_helpers import is_hbm_buffer
from nkilib.streaming import ceil_div, load, load_repeated, load_transposed, sbuf, size, spans, store, transpose
from nkilib.tuned import choose

_PART_KEYS = 2048
"""Keys of one sequence, or of several short ones, that are loaded at once."""

_FEW = 16
"""Queries of a sequence up to which two banks of PSUM hold the scores of enough keys."""

_FLOATS = (nl.bfloat16, nl.float16, nl.float32, nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)


@nki.jit
def attention_tkg(
    q: nl.NkiTensor,
    k_active: nl.NkiTensor,
    v_active: nl.NkiTensor,
    k_prior: nl.NkiTensor,
    v_prior: nl.NkiTensor,
    mask: nl.NkiTensor,
    out: nl.NkiTensor,
    cfg: AttnTKGConfig,
    sbm: SbufManager | None,
    inv_freqs: nl.NkiTensor | None = None,
    rope_pos_ids: nl.NkiTensor | None = None,
    start_pos_ids: nl.NkiTensor | None = None,
    sink: nl.NkiTensor | None = None,
    active_blocks_table: nl.NkiTensor | None = None,
    k_out: nl.NkiTensor | None = None,
    cp_softmax_stats_out: dict[str, Any] | None = None,
    DBG_TENSORS: tuple[Any, ...] | None = None,
    max_context_len: nl.NkiTensor | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    *,
    tiles: Mapping[str, int] | None = None,
) -> tuple[nl.NkiTensor, nl.NkiTensor | None]:
    """One step of attention.

    Args:
        q, k_active, v_active, k_prior, v_prior, mask: see the top of this file.
        out: gets the result.
        cfg: sizes and options.
        sbm: the caller's manager of SBUF, or None. It has no effect, which is told: the compiler places tiles around
            what it gave out.
        inv_freqs: (d / 2, 1), with ``cfg.fuse_rope``.
        rope_pos_ids: (B, S) positions, with ``cfg.fuse_rope`` or ``cfg.use_pos_id``.
        start_pos_ids: (B, S), with ``cfg.use_pos_id``: the first key of each query's window; behind its end in a ring.
        sink: (H, 1), a score of each head that takes part of the weight and has no value.
        active_blocks_table: (B, blocks) of a paged cache; numbers below 0 are blocks that nobody looks at.
        k_out: gets the turned keys, with ``cfg.fuse_rope``.
        cp_softmax_stats_out, DBG_TENSORS, max_context_len: not built.
        dtype_mode: which FP8 bytes of unknown dtype are; arrays here have one, so that it has no effect; OCP and AUTO
            are told.
        tiles: ``keys`` of the cache that are loaded at once, by default 2048, and ``banks`` of PSUM that scores of keys
            with one maximum take, by default 4 where that is enough for all or a sequence has many queries, else 2.

    Returns:
        `out` and `k_out`.

    Raises:
        KernelLimit: shapes that do not belong together, sizes beyond the limits, options that need another argument.
    """
    limits.not_built(
        {
            "cp_softmax_stats_out": cp_softmax_stats_out,
            "DBG_TENSORS": DBG_TENSORS or None,
            "max_context_len": max_context_len,
        },
        "attention_tkg",
    )
    limits.one_of("dtype_mode", dtype_mode, list(DtypeMode))
    limits.without_effect("attention_tkg", "as the compiler allocates memory", sbm=sbm)
    told = None if dtype_mode is DtypeMode.NON_OCP else dtype_mode
    limits.without_effect("attention_tkg", "as arrays have a dtype", dtype_mode=told)
    check_step(cfg, {"k_prior": k_prior}, {"v_prior": v_prior}, {"mask": mask}, active_blocks_table)
    _check_new(cfg, q, k_active, v_active, k_prior)
    _check_options(cfg, inv_freqs, rope_pos_ids, start_pos_ids, sink, out, k_out)
    queries, keys = new_tokens(q, k_active, (inv_freqs, rope_pos_ids), k_out, cfg)
    step, mine = plan(
        cfg,
        (queries, keys, lambda there: load(v_active[there].permute((2, 0, 1, 3)))),
        (k_prior, v_prior, active_blocks_table),
        (mask, rope_pos_ids, start_pos_ids),
        sink,
        tiles,
    )
    attended(step, mine, out)
    return out, k_out


def new_tokens(q: Any, k_active: Any, rope: tuple[Any, Any], k_out: Any, cfg: AttnTKGConfig) -> tuple[Any, Any]:
    """Queries ``(d, B * H * S)`` and keys ``(d, B * S)`` in SBUF; with ``cfg.fuse_rope`` turned, keys in `k_out` too.

    Args:
        rope: frequencies and positions, see `inv_freqs` and `rope_pos_ids` of `attention_tkg`.
    """
    queries, keys = _on_chip(q, cfg, cfg.q_head), _on_chip(k_active, cfg, 1)
    if cfg.fuse_rope:
        queries, keys = _turned(queries, keys, *rope, cfg)
        _give_keys(keys, k_out, cfg)
    return queries, keys


def plan(
    cfg: AttnTKGConfig,
    new: tuple[Any, Any, Any],
    cache: tuple[Any, Any, Any],
    masks: tuple[Any, Any, Any],
    sink: Any,
    tiles: Mapping[str, int] | None = None,
) -> tuple[Step, Duty]:
    """The step of arguments that were checked, and what this core does of it.

    Args:
        new: queries ``(d, B * H * S)`` and keys ``(d, B * S)`` in SBUF, and `Step.values`, of the new tokens.
        cache: keys, values, and the table of a paged cache or None.
        masks: the mask, positions and starts of windows.
        tiles: ``keys`` and ``banks``, see `attention_tkg`.
    """
    keys, values, table = cache
    mask, ends, starts = masks
    run = 0 if cfg.strided_mm1 else 1
    source: Rows | Blocks = Rows(keys, values, cfg.tp_k_prior)
    if cfg.block_len:
        blocks, cores, rows = cfg.curr_sprior // cfg.block_len, int(nl.num_programs(0)), int(nl.tile_size.pmax)
        step = (cfg.bs, cfg.q_head, cfg.s_active, cfg.full_sprior, cfg.enable_fa_s_prior_tiling)
        run, ratio = resize_cache_block_len_for_attention_tkg_kernel(blocks, cfg.block_len, cores, rows, *step)
        source = Blocks(keys, values, block_index(table[:, 0:blocks], slice(0, cfg.bs), ratio), run)
    marks = Positions(mask, ends, starts, cfg) if cfg.use_pos_id else Mask(mask, cfg, run if cfg.block_len else 0)
    sizes = {"batch": cfg.bs, "rows": cfg.rows, "keys": cfg.curr_sprior}
    default = {"keys": _PART_KEYS, "banks": _banks(cfg)}
    chosen = choose("attention_tkg", sizes, default, tiles)
    limits.between("keys of tiles", chosen["keys"], 1, 1 << 24)
    limits.between("banks of tiles", chosen["banks"], 1, 4, "half of PSUM, so that another round has room")
    return Step(cfg, *new, source, marks, sink, chosen["keys"], chosen["banks"], run), duty(cfg, run)


def _banks(cfg: AttnTKGConfig) -> int:
    """Banks of PSUM for the scores of a round: half of them if that is all, else two, so that rounds overlap."""
    everything = ceil_div(cfg.curr_sprior, int(nl.tile_size.pmax)) * cfg.rows * cfg.bs
    return 4 if cfg.rows > _FEW or everything <= 4 * BANK else 2


def attended(step: Step, mine: Duty, out: Any) -> None:
    """The result of all cores in `out`: ``(d, B * H * S)`` in SBUF or ``(B, H, d, S)`` in HBM."""
    cfg, on_chip = step.cfg, not is_hbm_buffer(out)
    columns = slice(mine.sequences.start * cfg.rows, mine.sequences.stop * cfg.rows)
    into = out[:, columns] if on_chip else sbuf((cfg.d_head, size(columns)), out.dtype)
    decoded(step, mine, into)
    if on_chip and mine.divided:
        other = slice(cfg.bs * cfg.rows - columns.stop, cfg.bs * cfg.rows - columns.start)
        swap(into, out[:, other], cfg.use_gpsimd_sb2sb)
    if not on_chip:
        first = mine.sequences.start * cfg.q_head
        _store(
            into, out.reshape((cfg.bs * cfg.q_head, cfg.d_head * cfg.s_active)), first, cfg.s_active, not mine.divided
        )


# -------------------------------------------------------------------------------------------------------------- checks


Named = dict[str, Any]
"""A tensor under the name of its argument."""


def check_step(cfg: AttnTKGConfig, keys: Named, values: Named, mask: Named, table: Any) -> None:
    """Check sizes, and a cache and a mask, each under the name of its argument."""
    limits.generation("attention_tkg", 3, "it transposes while data moves")
    limits.between("d_head", cfg.d_head, 1, 128, "it lies on partitions")
    for name in ("bs", "q_head", "s_active"):
        limits.between(name, getattr(cfg, name), 1, 1 << 20)
    limits.between("q_head * s_active", cfg.rows, 1, 128, "they go to partitions")
    limits.between("curr_sprior", cfg.curr_sprior, cfg.s_active, 1 << 24, "it counts the new tokens")
    _check_cache(cfg, keys, values, table)
    first = cfg.s_active if cfg.use_pos_id else cfg.curr_sprior
    for name, tensor in mask.items():
        limits.shape(name, tensor, (first, cfg.bs, cfg.q_head, cfg.s_active))
    limits.same_dtype(**keys, **values)
    for name, tensor in {**keys, **values}.items():
        limits.dtype(name, tensor, _FLOATS)


def _check_new(cfg: AttnTKGConfig, q: Any, k_active: Any, v_active: Any, k_prior: Any) -> None:
    """Check what comes with the new tokens."""
    limits.shape("v_active", v_active, (cfg.bs, 1, cfg.s_active, cfg.d_head))
    tensors = {"q": q, "k_active": k_active, "v_active": v_active, "k_prior": k_prior}
    for name, tensor in tensors.items():
        limits.dtype(name, tensor, _FLOATS)
    if nl.float32 in [tensor.dtype for tensor in tensors.values()]:
        limits.same_dtype(**tensors)  # the Tensor engine multiplies float32 by nothing else


def _check_cache(cfg: AttnTKGConfig, keys: Named, values: Named, table: Any) -> None:
    if not cfg.block_len:
        why = "a paged cache has cfg.block_len"
        limits.need(table is None, "active_blocks_table", table, why, "pass cfg.block_len")
        least = cfg.curr_sprior - cfg.s_active
        limits.between("full_sprior", cfg.full_sprior, least, 1 << 24, "the cache holds all keys but the new tokens'")
        order = ("keys", "head size") if cfg.tp_k_prior else ("head size", "keys")
        for tensors, layout in ((keys, order), (values, ("keys", "head size"))):
            for name, tensor in tensors.items():
                known = {"head size": cfg.d_head, "keys": cfg.full_sprior}
                count = f"sequences of {name}"
                limits.shape(name, tensor, (count, 1, *layout), known)
                limits.between(count, known[count], cfg.bs, 1 << 24, "one for each of bs")
        return
    limits.need(table is not None, "active_blocks_table", None, "a paged cache has a table", "pass active_blocks_table")
    limits.layout(
        cfg.tp_k_prior, "cfg.tp_k_prior", False, "a paged cache has keys as (key, head size)", "pass tp_k_prior=True"
    )
    limits.multiple("curr_sprior", cfg.curr_sprior, cfg.block_len, "whole blocks are looked at")
    for name, tensor in {**keys, **values}.items():
        limits.shape(name, tensor, ("blocks", cfg.block_len, cfg.d_head))
    found = limits.shape("active_blocks_table", table, (cfg.bs, "blocks of a sequence"))
    least = cfg.curr_sprior // cfg.block_len
    limits.between("blocks of a sequence", found["blocks of a sequence"], least, 1 << 24, "the table has all blocks")
    limits.dtype("active_blocks_table", table, (nl.int32, nl.uint32))


def _check_options(
    cfg: AttnTKGConfig, inv_freqs: Any, positions: Any, starts: Any, sink: Any, out: Any, k_out: Any
) -> None:
    needed = cfg.fuse_rope or cfg.use_pos_id
    why = "cfg.fuse_rope and cfg.use_pos_id need positions"
    limits.need(positions is not None or not needed, "rope_pos_ids", None, why, "pass rope_pos_ids")
    limits.need(
        starts is None or cfg.use_pos_id, "start_pos_ids", starts, "windows need cfg.use_pos_id", "pass use_pos_id=True"
    )
    for name, tensor, shape in (
        ("rope_pos_ids", positions, (cfg.bs, cfg.s_active)),
        ("start_pos_ids", starts, (cfg.bs, cfg.s_active)),
        ("sink", sink, (cfg.q_head, 1)),
        ("inv_freqs", inv_freqs, (cfg.d_head // 2, 1)),
        ("out", out, _out_shape(cfg, cfg.q_head, cfg.out_in_sb)),
        ("k_out", k_out, _out_shape(cfg, 1, cfg.k_out_in_sb)),
    ):
        if tensor is not None:
            limits.shape(name, tensor, shape)
    for name, tensor, on_chip in (("out", out, cfg.out_in_sb), ("k_out", k_out, cfg.k_out_in_sb)):
        place = "SBUF" if on_chip else "HBM"
        fits = tensor is None or is_hbm_buffer(tensor) is not on_chip
        limits.need(fits, name, f"not in {place}", f"cfg.{name}_in_sb says {place}", f"pass {name} in {place}")
    if cfg.fuse_rope:
        limits.multiple("cfg.d_head", cfg.d_head, 2, "elements are turned in pairs")
        limits.need(inv_freqs is not None, "inv_freqs", None, "cfg.fuse_rope needs frequencies", "pass inv_freqs")


def _out_shape(cfg: AttnTKGConfig, heads: int, on_chip: bool) -> tuple[int, ...]:
    columns = cfg.bs * heads * cfg.s_active
    return (cfg.d_head, columns) if on_chip else (cfg.bs, heads, cfg.d_head, cfg.s_active)


# ---------------------------------------------------------------------------------------------------- queries and keys


def _on_chip(source: Any, cfg: AttnTKGConfig, heads: int) -> Any:
    """Queries, or keys with one head, as ``(d, B * heads * S)`` in SBUF."""
    name, head, new = ("q" if heads == cfg.q_head else "k_active"), cfg.d_head, cfg.s_active
    columns = cfg.bs * heads * new
    if not is_hbm_buffer(source):
        limits.need(cfg.qk_in_sb, name, "in SBUF", "cfg.qk_in_sb says where q and k_active are", "pass qk_in_sb=True")
        limits.shape(name, source, (head, columns))
        return source
    limits.need(not cfg.qk_in_sb, name, "in HBM", "cfg.qk_in_sb says where q and k_active are", "pass qk_in_sb=False")
    shape = tuple(source.shape)
    if shape in ((cfg.bs, head, heads, new), (cfg.bs, head, new) if heads == 1 else ()):
        tile = sbuf((head, cfg.bs, heads * new), source.dtype)
        nisa.dma_copy(dst=tile, src=source.reshape((cfg.bs, head, heads * new)).permute((1, 0, 2)))
        return tile.reshape((head, columns))
    limits.shape(name, source, (cfg.bs, heads, new, head))
    return load_transposed(source.reshape((columns, head)))[0]


def _turned(queries: Any, keys: Any, inv_freqs: Any, positions: Any, cfg: AttnTKGConfig) -> tuple[Any, Any]:
    """Queries and keys turned by their positions, queries divided by the root of the head size."""
    half, columns = cfg.d_head // 2, cfg.bs * cfg.s_active
    angles = sbuf((half, columns), nl.float32)
    frequency = load(inv_freqs, nl.float32)
    nisa.tensor_scalar(dst=angles, data=load_repeated(positions, half, nl.float32), op0=nl.multiply, operand0=frequency)
    cos, sin = (function(angles).reshape((half, cfg.bs, cfg.s_active)) for function in (nl.cos, nl.sin))
    turned = []
    for tile, heads in ((queries, cfg.q_head), (keys, 1)):
        shape = (cfg.d_head, cfg.bs, heads, cfg.s_active)
        made = RoPE_sbuf(tile.reshape(shape), cos, sin, sbuf(shape, tile.dtype))
        turned.append(made.reshape((cfg.d_head, columns * heads)))
    scaled = sbuf(tuple(turned[0].shape), queries.dtype)
    nisa.tensor_scalar(dst=scaled, data=turned[0], op0=nl.multiply, operand0=1.0 / math.sqrt(cfg.d_head))
    return scaled, turned[1]


def _give_keys(keys: Any, k_out: Any, cfg: AttnTKGConfig) -> None:
    if k_out is None:
        return
    if cfg.k_out_in_sb:
        nisa.tensor_copy(dst=k_out, src=keys)
    else:
        _store(keys, k_out.reshape((cfg.bs, cfg.d_head * cfg.s_active)), 0, cfg.s_active, True)


def _store(tile: Any, target: Any, first: int, new: int, shared: bool) -> None:
    """``(d, rows * S)`` in SBUF to rows of ``(d * S)`` in HBM, from row `first` on; `shared`: cores divide the rows."""
    head, rows = tile.shape[0], tile.shape[1] // new
    split = tile.reshape((head, rows, new))
    cores = int(nl.num_programs(0)) if shared else 1
    for some in spans(rows, min(int(nl.tile_size.pmax), -(-rows // cores)), shared=shared):
        across = sbuf((size(some), head, new), target.dtype)
        for place in range(new):
            transpose(split[:, some, place], into=across[:, :, place])
        store(target[first + some.start : first + some.stop], across)
