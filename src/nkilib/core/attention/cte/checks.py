"""What `attention_cte` refuses."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.attention.cte.operands import CHUNK
from nkilib.streaming import ceil_div

DTYPES = nl.bfloat16, nl.float16, nl.float32

_PRIOR = "k_prior, v_prior and prior_used_len come together"
_BOUNDS = "bound_min and bound_max come together"


def check(a: Mapping[str, Any]) -> None:
    """Check the arguments of a call, by name.

    Raises:
        KernelLimit: a code of `nkilib.limits`, with the numbers.
    """
    limits.generation("attention_cte", 3, "range_select hides scores of keys that a query does not see")
    sizes = _check_shapes(a)
    limits.same_dtype(q=a["q"], k=a["k"], v=a["v"], k_prior=a["k_prior"], v_prior=a["v_prior"])
    limits.dtype("q", a["q"], DTYPES)
    scale, window = a["scale"], a["sliding_window"]
    limits.need(scale > 0, "scale", scale, "scale is positive", "negate q, and pass a positive scale")
    limits.need((window or 0) >= 0, "sliding_window", window, "sliding_window is None or not negative", "pass None")
    limits.one_of("softmax_dtype", a["softmax_dtype"], (nl.float32, nl.bfloat16))
    limits.need(
        a["cache_softmax"] or not a["skip_output_normalization"],
        "cache_softmax",
        a["cache_softmax"],
        "skip_output_normalization goes with cache_softmax, which returns what results are to be divided by",
        "pass cache_softmax=True",
    )
    _check_prior(a, sizes)
    _check_positions(a, sizes)
    _check_bias(a, sizes)
    limits.not_built(
        {
            "mm_out_dtype": None if a["mm_out_dtype"] == nl.float32 else a["mm_out_dtype"],
            "bias_layout": None if a["bias_layout"] == "dense" else a["bias_layout"],
            "bias_band_params": a["bias_band_params"],
        },
        "attention_cte",
    )


def _check_shapes(a: Mapping[str, Any]) -> dict[str, int]:
    sizes = limits.shape("q", a["q"], ("batch", "queries", "d") if a["tp_q"] else ("batch", "d", "queries"))
    limits.shape("k", a["k"], ("batch_kv", "keys", "d") if a["tp_k"] else ("batch_kv", "d", "keys"), sizes)
    limits.shape("v", a["v"], ("batch_kv", "keys", "d"), sizes)
    limits.between("d", sizes["d"], 1, 128, "the products contract over it on 128 partitions")
    limits.between("queries", sizes["queries"], 1, 1 << 24, "positions are float32")
    limits.between("keys", sizes["keys"], 1, 1 << 24, "positions are float32")
    limits.multiple("batch", sizes["batch"], sizes["batch_kv"], "each head of keys serves as many heads of queries")
    if a["sink"] is not None:
        limits.shape("sink", a["sink"], ("batch", 1), sizes)
    return sizes


def _check_prior(a: Mapping[str, Any], sizes: dict[str, int]) -> None:
    given = [name for name in ("k_prior", "v_prior", "prior_used_len") if a[name] is not None]
    limits.need(len(given) in (0, 3), "the prefix", f"{', '.join(given)} alone", _PRIOR, "pass all of them")
    if given:
        shape = ("batch_kv", "prior", "d") if a["tp_k"] else ("batch_kv", "d", "prior")
        limits.shape("k_prior", a["k_prior"], shape, sizes)
        limits.shape("v_prior", a["v_prior"], ("batch_kv", "prior", "d"), sizes)
        limits.shape("prior_used_len", a["prior_used_len"], (1,))
    else:
        sizes["prior"] = 0


def _check_positions(a: Mapping[str, Any], sizes: dict[str, int]) -> None:
    degree, offset = a["global_cp_deg"], a["cp_offset"]
    limits.need(
        degree is None or offset is not None,
        "cp_offset",
        offset,
        "cp_offset says where the queries of this rank are, with global_cp_deg",
        "pass cp_offset",
    )
    limits.need(
        degree is not None or not a["cp_strided_q_slicing"],
        "global_cp_deg",
        degree,
        "cp_strided_q_slicing takes every global_cp_deg-th query",
        "pass global_cp_deg and cp_offset",
    )
    limits.need(
        not a["cp_striped_input"] or (offset is not None and a["causal_mask"] and not a["sliding_window"]),
        "cp_striped_input",
        True,
        "cp_striped_input goes with causal_mask and a cp_offset of 0 or -1, without sliding_window",
        "pass cp_offset and causal_mask=True",
    )
    limits.need(
        not a["cp_striped_input"] or not sizes["prior"],
        "cp_striped_input",
        True,
        "cp_striped_input goes without a prefix",
        "leave out k_prior, v_prior and prior_used_len",
    )
    if offset is not None:
        limits.need(prod(offset.shape) == 1, "cp_offset", list(offset.shape), "cp_offset is (1, 1)", "pass one number")
    given = [name for name in ("bound_min", "bound_max") if a[name] is not None]
    limits.need(len(given) in (0, 2), "the bounds", f"{', '.join(given)} alone", _BOUNDS, "pass both")
    limits.need(
        not (given and sizes["prior"]),
        "bound_min",
        "given with a prefix",
        "sequences that are packed have no prefix",
        "leave out k_prior, v_prior and prior_used_len",
    )
    for name in given:
        count = prod(a[name].shape)
        limits.need(
            count in (sizes["queries"], sizes["batch"] * sizes["queries"]),
            name,
            list(a[name].shape),
            f"{name} is (batch, queries), ({sizes['batch']}, {sizes['queries']}), or has one row for all of the batch",
            f"pass {name} with {sizes['queries']} numbers for each of the batch",
        )


def _check_bias(a: Mapping[str, Any], sizes: dict[str, int]) -> None:
    if a["position_bias"] is None or a["bias_layout"] != "dense":
        return
    columns = ceil_div(sizes["prior"], CHUNK) * CHUNK + sizes["keys"]
    limits.shape("position_bias", a["position_bias"], ("batch", "queries", columns), sizes)
    limits.dtype("position_bias", a["position_bias"], DTYPES)
