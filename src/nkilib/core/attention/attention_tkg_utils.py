"""What a step of decoding is: its sizes and options, which cores do what, and the order of a paged cache's keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

import nki.language as nl
from nkilib import limits
from nkilib.streaming import ceil_div

_TILE_KEYS = 8192
"""Keys of one core up to which the published kernel has one tile; the order of a paged mask's rows depends on it."""
_SHARED_KEYS = 256
"""Least number of keys that two cores divide."""


@dataclass
class AttnTKGConfig(nl.NKIObject):
    """Sizes and options of one step of decoding.

    Attributes:
        bs: sequences that are decoded at once.
        q_head: query heads; they share one head of keys and values.
        s_active: new tokens of each sequence.
        curr_sprior: keys that are looked at, the new ones included: they take the place of the last ones.
        full_sprior: keys that the cache has room for; those of the new tokens are not read from it.
        d_head: head size.
        block_len: keys of a block of a paged cache; 0 for a cache with one row of keys for each sequence.
        tp_k_prior: the cache holds keys as (keys, head size), and not as (head size, keys).
        strided_mm1: partition p holds keys that follow each other, so that values load in long runs; otherwise key k is
            on partition ``k % 128``.
        use_pos_id: which keys of the cache count follows from positions; the mask is that of the new tokens.
        fuse_rope: queries and new keys are turned by their positions, and queries divided by ``sqrt(d_head)``.
        use_gpsimd_sb2sb: cores exchange results through GpSimd, otherwise by DMA.
        qk_in_sb: queries and new keys are in SBUF.
        k_out_in_sb, out_in_sb: the turned keys, and the result, stay in SBUF.
        enable_fa_s_prior_tiling: the order of a paged mask's rows is that of the published kernel with tiles of 8192
            keys. The keys are divided into parts for either value.
    """

    bs: int = 0
    q_head: int = 0
    s_active: int = 0
    curr_sprior: int = 0
    full_sprior: int = 0
    d_head: int = 0
    block_len: int = 0
    tp_k_prior: bool = False
    strided_mm1: bool = True
    use_pos_id: bool = False
    fuse_rope: bool = False
    use_gpsimd_sb2sb: bool = True
    qk_in_sb: bool = False
    k_out_in_sb: bool = False
    out_in_sb: bool = False
    enable_fa_s_prior_tiling: bool = True

    @property
    def rows(self) -> int:
        """Queries of one sequence: its heads and new tokens."""
        return self.q_head * self.s_active

    @property
    def cached(self) -> int:
        """Keys of the cache that are looked at, or that new tokens take the place of."""
        return self.curr_sprior if self.block_len else min(self.curr_sprior, self.full_sprior)


def is_batch_sharded(bs: int, q_head: int, s_active: int, curr_sprior: int, p_max: int = 128) -> bool:
    """Whether two cores divide the sequences: there are many queries, or too few keys to divide."""
    return bs % 2 == 0 and (bs * q_head * s_active > p_max or curr_sprior < _SHARED_KEYS)


def is_s_prior_sharded(bs: int, q_head: int, s_active: int, curr_sprior: int, p_max: int = 128) -> bool:
    """Whether two cores divide the keys."""
    return not is_batch_sharded(bs, q_head, s_active, curr_sprior, p_max) and curr_sprior >= 2 * p_max


def get_total_n_prgs(bs: int, q_head: int, s_active: int, curr_sprior: int, lnc: int, p_max: int = 128) -> int:
    """Cores that have something to do."""
    sizes = (bs, q_head, s_active, curr_sprior, p_max)
    return lnc if lnc > 1 and (is_batch_sharded(*sizes) or is_s_prior_sharded(*sizes)) else 1


def uses_flash_attention(cfg_flag: bool, s_prior: int) -> tuple[bool, int]:
    """Whether the order of a paged mask's rows is that of several tiles, and keys of a tile."""
    return bool(cfg_flag) and s_prior > _TILE_KEYS, _TILE_KEYS


def resize_cache_block_len_for_attention_tkg_kernel(
    num_blocks_per_batch: int,
    block_len: int,
    lnc: int,
    p_max: int,
    bs: int,
    q_head: int,
    s_active: int,
    full_sprior: int = 0,
    enable_fa_s_prior_tiling: bool = True,
) -> tuple[int, int]:
    """The block length that a paged cache is read with, and how many of these blocks one of the cache is.

    128 blocks lie on the partitions at once, so that every core, and every tile of keys of the published kernel, takes
    a multiple of 128 blocks: where the cache's own blocks are too long for that, parts of them count as blocks. A mask
    for a paged cache has its rows in the order that follows: ``(128 blocks, key of the block, block)``.

    Args:
        num_blocks_per_batch, block_len: blocks of a sequence, keys of a block.
        lnc, p_max: cores and partitions.
        bs, q_head, s_active: sizes of the step, which decide what cores divide.
        full_sprior: either value does the same.
        enable_fa_s_prior_tiling: as in `AttnTKGConfig`.

    Raises:
        KernelLimit: the keys are no multiple of the partitions of all cores that divide them (``nkilib.shape``).
    """
    keys = num_blocks_per_batch * block_len
    cores = lnc if lnc > 1 and is_s_prior_sharded(bs, q_head, s_active, keys, p_max) else 1
    limits.multiple("keys of a paged sequence", keys, cores * p_max, "128 blocks lie on partitions at once")
    share = keys // cores
    tiled, tile = uses_flash_attention(enable_fa_s_prior_tiling, share)
    divisor = math.gcd(share // p_max, tile // p_max, share % tile // p_max) if tiled else share // p_max
    length = math.gcd(block_len, divisor)
    return length, block_len // length


@dataclass(frozen=True)
class Part:
    """Keys that are handled together: `tiles` times one key on each of `rows` partitions.

    Attributes:
        start: the first key.
        rows, tiles: partitions, and keys on each.
        run: keys that follow each other on a partition: `tiles`, 1, or the block length of a paged cache.
    """

    start: int
    rows: int
    tiles: int
    run: int

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return self.rows * self.tiles

    @property
    def pattern(self) -> list[list[int]]:
        """Steps from key to key along the tiles, as `nisa.iota` takes them; from row to row it is `run`."""
        return [[self.run * self.rows, self.tiles // self.run], [1, self.run]]


def parts(start: int, stop: int, most: int, run: int, rows: int = 128) -> list[Part]:
    """The keys from `start` to `stop` in parts.

    Args:
        most: keys of a part, rounded up to whole tiles, of a paged cache to whole sets of 128 blocks.
        run: keys that follow each other on a partition, or 0 for as many as a part has.
    """
    step = rows * max(run, 1) * ceil_div(most, rows * max(run, 1))
    found = [
        Part(at, rows, (min(at + step, stop) - at) // rows, run or (min(at + step, stop) - at) // rows)
        for at in range(start, stop - rows + 1, step)
    ]
    covered = found[-1].start + found[-1].keys if found else start
    return found + ([Part(covered, stop - covered, 1, 1)] if covered < stop else [])
