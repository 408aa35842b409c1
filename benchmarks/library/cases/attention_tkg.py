"""Steps of decoding over long and short caches: rows of keys and blocks, several heads and new tokens, two cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.attention_tkg import AttnTKGConfig
from nkilib.core.utils.allocator import SbufManager


def _manager() -> SbufManager:
    """A manager of most of SBUF, as callers have it: a scope is open."""
    manager = SbufManager(0, nl.tile_size.sbuf_fmax_bytes - 16 * 1024)
    manager.open_scope()
    return manager


def _case(
    batch: int, heads: int, new: int, keys: int, head: int = 128, lnc: int = 1, official: bool = True, **options: Any
) -> Case:
    """`official`: queries are turned, without which the published kernel wants them in SBUF."""
    cfg = AttnTKGConfig(
        **{"bs": batch, "q_head": heads, "s_active": new, "curr_sprior": keys, "full_sprior": keys, "d_head": head},
        **{"fuse_rope": official, "use_pos_id": official, **options},
    )

    def arguments(make: Make) -> dict[str, Any]:
        made = {
            **{"q": make((batch, heads, new, head)), "k_active": make((batch, 1, new, head))},
            **{"v_active": make((batch, 1, new, head)), **_cache(make, cfg)},
            "mask": make((new if cfg.use_pos_id else keys, batch, heads, new), nl.uint8, _causal),
            **{"out": make((batch, heads, head, new)), "cfg": cfg, "sbm": _manager()},
        }
        if official:
            made["inv_freqs"] = make(
                (head // 2, 1), nl.float32, lambda _, shape: 1e4 ** (-np.arange(shape[0]) / shape[0])[:, None]
            )
            made["rope_pos_ids"] = make(
                (batch, new), nl.float32, lambda _, shape: np.full(shape, keys - new) + np.arange(new)
            )
            made["k_out"] = make((batch, 1, head, new))
        return made

    layout = f", blocks of {cfg.block_len}" if cfg.block_len else "" if cfg.tp_k_prior else ", keys transposed"
    name = f"{batch} sequences of {keys}, {heads} heads of {head}, {new} new" + ("" if official else ", mask") + layout
    moved = 2 * batch * keys * head * 2
    flops = 4 * batch * heads * new * keys * head
    sizes = {"batch": batch, "rows": cfg.rows, "keys": keys}
    tiles = tuple({"keys": each, "banks": banks} for each in (1024, 2048, 4096) for banks in (2, 4))
    return Case("attention_tkg", name, arguments, flops, moved, lnc, official=official, sizes=sizes, tiles=tiles)


def _cache(make: Make, cfg: AttnTKGConfig) -> dict[str, Any]:
    if cfg.block_len:
        blocks = cfg.bs * cfg.full_sprior // cfg.block_len
        pages = (blocks, cfg.block_len, cfg.d_head)
        table = make(
            (cfg.bs, cfg.curr_sprior // cfg.block_len),
            nl.int32,
            lambda rng, shape: rng.permutation(blocks).reshape(shape),
        )
        return {"k_prior": make(pages), "v_prior": make(pages), "active_blocks_table": table}
    by_key = (cfg.bs, 1, cfg.full_sprior, cfg.d_head)
    keys = by_key if cfg.tp_k_prior else (cfg.bs, 1, cfg.d_head, cfg.full_sprior)
    return {"k_prior": make(keys), "v_prior": make(by_key)}


def _frequencies(_: Any, shape: tuple[int, ...]) -> Any:
    return 1e4 ** (-np.arange(shape[0]) / shape[0])[:, None]


def _causal(_: Any, shape: tuple[int, ...]) -> Any:
    """Every key of the cache counts, and new tokens up to the query's own."""
    keys, _, _, new = shape
    allowed = np.arange(keys)[:, None] - (keys - new) <= np.arange(new)
    return np.broadcast_to(allowed[:, None, None, :], shape)


CASES = [
    _case(4, 4, 1, 8192),
    _case(4, 4, 1, 8192, tp_k_prior=True),
    _case(4, 4, 1, 8192, lnc=2),
    _case(4, 1, 5, 1024, tp_k_prior=True),
    _case(4, 2, 7, 16384, tp_k_prior=True),
    _case(32, 4, 1, 2048),
    _case(4, 4, 1, 8192, official=False, block_len=32, tp_k_prior=True),
    _case(64, 8, 1, 2048, official=False),
]
