"""The attention half of a layer in a decoding step: a shard of an 8 B model, of a 70 B model, paged, on two cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.utils.common_types import QuantizationType


def _case(
    batch: int,
    new: int,
    hidden: int,
    heads: int,
    keys: int,
    head: int = 128,
    block: int = 0,
    lnc: int = 1,
    transposed: bool = False,
    norms: bool = False,
) -> Case:
    columns = (heads + 2) * head

    def arguments(make: Make) -> dict[str, Any]:
        def weights(*shape: int) -> Any:
            return make(shape, nl.bfloat16, lambda rng, shape: rng.standard_normal(shape) / shape[0] ** 0.5)

        return {
            **{"X": make((batch, new, hidden)), "X_hidden_dim_actual": None, "rmsnorm_X_enabled": True},
            **{"rmsnorm_X_eps": 1e-5, "rmsnorm_X_gamma": make((1, hidden)), "W_qkv": weights(hidden, columns)},
            **{"bias_qkv": None, "quantization_type_qkv": QuantizationType.NONE, "weight_dequant_scale_qkv": None},
            **{"input_dequant_scale_qkv": None, **_head_norms(make, "pre", head, norms)},
            **{name: make((head // 2, batch, new), nl.bfloat16, _cosines) for name in ("cos", "sin")},
            **{"rope_contiguous_layout": True, **_head_norms(make, "post", head, enabled=False)},
            **{"K_cache_transposed": transposed, **_caches(make, batch, new, keys, head, block, transposed)},
            **{"attention_mask": make((keys, batch, heads, new), nl.uint8, _all_but_new), "sink": None},
            **{"update_cache": True, "W_out": weights(heads * head, hidden), "bias_out": None},
            **{"quantization_type_out": QuantizationType.NONE, "weight_dequant_scale_out": None},
            **{"input_dequant_scale_out": None, "transposed_out": False, "out_in_sb": False},
        }

    layout = f", blocks of {block}" if block else ", keys transposed" if transposed else ""
    name = f"{batch} sequences of {keys}, {new} new, {hidden} features, {heads} heads" + (", norms" if norms else "")
    moved = 2 * (2 * batch * keys * head + hidden * (columns + heads * head))
    flops = 2 * batch * new * (2 * heads * keys * head + hidden * (columns + heads * head))
    return Case("attention_block_tkg", name + layout, arguments, flops, moved, lnc)


def _head_norms(make: Make, place: str, head: int, enabled: bool) -> dict[str, Any]:
    prefix = f"rmsnorm_QK_{place}_rope"
    weights = {f"{prefix}_W_{kind}": make((1, head)) if enabled else None for kind in ("Q", "K")}
    return {f"{prefix}_enabled": enabled, f"{prefix}_eps": 1e-5, **weights}


def _caches(make: Make, batch: int, new: int, keys: int, head: int, block: int, transposed: bool) -> dict[str, Any]:
    """Both caches, and where new tokens go: the last places, which the new tokens stand for in attention."""
    if not block:
        rows = (batch, 1, keys, head)
        index = make((batch, 1), nl.uint32, lambda _, shape: np.full(shape, keys - new))
        cache = {"K_cache": make((batch, 1, head, keys) if transposed else rows), "V_cache": make(rows)}
        return {"active_blocks_table": None, **cache, "kv_cache_update_idx": index}
    each = keys // block
    blocks = batch * each
    table = make((batch, each), nl.uint32, lambda _, shape: np.arange(blocks)[::-1].reshape(shape))
    last = (blocks - each * (1 + np.arange(batch)) + 1)[:, None] * block - new
    index = make((batch, 1), nl.uint32, lambda _, shape: last)
    cache = {name: make((blocks, block, head)) for name in ("K_cache", "V_cache")}
    return {"active_blocks_table": table, **cache, "kv_cache_update_idx": index}


def _cosines(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.cos(rng.uniform(0, 6, shape))


def _all_but_new(_: Any, shape: tuple[int, ...]) -> Any:
    """Every key of the cache counts, and new tokens up to the query's own."""
    keys, _, _, new = shape
    allowed = np.arange(keys)[:, None] - (keys - new) <= np.arange(new)
    return np.broadcast_to(allowed[:, None, None, :], shape)


CASES = [
    _case(4, 1, 4096, 4, 8192),
    _case(4, 1, 4096, 4, 8192, transposed=True),
    _case(4, 1, 4096, 4, 8192, block=32, norms=True),
    _case(4, 1, 4096, 4, 8192, lnc=2),
    _case(1, 1, 4096, 4, 1024),
    _case(4, 4, 8192, 8, 4096),
]
