"""Attention of long sequences that ranks share, as training and prefill with context parallelism ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl

_BYTES = 2
_STEP = 0.15
"""Steps of bfloat16 at the largest results, as a part of the root mean square: queries that see few keys have them."""


def forward(name: str, heads: int, count: int, ranks: int, d: int = 128, lnc: int = 1, **options: Any) -> Case:
    """A case of `ring_attention_spmd_fwd`; queries of the last rank see all keys, or half of each rank's if striped."""
    seen = count * count * ranks
    if options.get("striped_input"):
        seen //= 2
    elif options.get("use_causal_mask"):
        seen -= count * count // 2
    return Case(
        kernel="ring_attention_spmd_fwd",
        name=f"{name}, {heads} heads, {count} of each of {ranks} ranks, d {d}",
        arguments=_forward(heads, count, ranks, d, options),
        flops=4 * heads * d * seen,
        hbm_bytes=_BYTES * heads * d * count * (2 + 2 * ranks),
        lnc=lnc,
        ranks=ranks,
        tolerance=_STEP,
        small=_forward(min(heads, 2), min(count, 512), ranks, d, options),
        official=False,
    )


def _forward(heads: int, count: int, ranks: int, d: int, options: Any) -> Callable[[Make], dict[str, Any]]:
    def arguments(make: Make) -> dict[str, Any]:
        return {
            "q": make((1, heads, d, count)),
            "k": make((1, heads, d, count)),
            "v": make((1, heads, count, d)),
            "replica_groups": (tuple(range(ranks)),),
            "num_workers": ranks,
            "softmax_scale": d**-0.5,
            "use_causal_mask": options.get("use_causal_mask", False),
            "striped_input": options.get("striped_input", False),
            "training": True,
        }

    return arguments


def unpermute(batch: int, count: int, ranks: int, d: int, lnc: int = 1) -> Case:
    """A case of `ring_attention_unpermute`."""

    def arguments(make: Make) -> dict[str, Any]:
        groups = (tuple(range(ranks)),)
        return {"x": make((batch, count, d)), "replica_groups": groups, "num_workers": ranks}

    return Case(
        kernel="ring_attention_unpermute",
        name=f"{batch} heads, {count} of each of {ranks} ranks, d {d}",
        arguments=arguments,
        flops=0,
        hbm_bytes=2 * _BYTES * batch * count * d,
        lnc=lnc,
        ranks=ranks,
        official=False,
    )


def backward(name: str, heads: int, count: int, ranks: int, d: int = 128, lnc: int = 1, **options: Any) -> Case:
    """A case of `ring_attention_spmd_bwd`."""
    seen = count * count * ranks // (2 if options else 1)
    return Case(
        kernel="ring_attention_spmd_bwd",
        name=f"{name}, {heads} heads, {count} of each of {ranks} ranks, d {d}",
        arguments=_backward(heads, count, ranks, d, lnc, options),
        flops=10 * heads * d * seen,
        hbm_bytes=heads * d * count * (5 * _BYTES + 3 * 4),
        lnc=lnc,
        ranks=ranks,
        tolerance=_STEP,
        small=_backward(min(heads, lnc), min(count, 256), ranks, d, lnc, options),
        official=False,
    )


def _backward(
    heads: int, count: int, ranks: int, d: int, lnc: int, options: dict[str, Any]
) -> Callable[[Make], dict[str, Any]]:
    def arguments(make: Make) -> dict[str, Any]:
        # near the logarithms of sums of normal scores, whose mean the results and values are far smaller than
        sums = lambda rng, shape: np.full(shape, 0.5 + np.log(count * ranks))  # noqa: E731
        few = lambda rng, shape: rng.standard_normal(shape) * 0.1  # noqa: E731
        return {
            **{name: make((1, heads, d, count)) for name in ("q_ref", "k_ref", "v_ref")},
            "o_ref": make((1, heads, d, count), fill=few),
            "dy_ref": make((1, heads, d, count)),
            "lse_ref": make((1, heads, 128, count // 128), nl.float32, fill=sums),
            "use_causal_mask": bool(options),
            "mixed_precision": True,
            "softmax_scale": d**-0.5,
            "num_workers": ranks,
            "lnc_size": lnc,
            "replica_groups": (tuple(range(ranks)),),
            "striped_attention": bool(options),
        }

    return arguments


CASES = [
    forward("all keys", 2, 4096, 4),
    forward("causal", 2, 2048, 4, use_causal_mask=True),
    forward("striped", 2, 4096, 4, use_causal_mask=True, striped_input=True),
    forward("striped", 2, 4096, 4, lnc=2, use_causal_mask=True, striped_input=True),
    unpermute(2, 4096, 4, 128),
    unpermute(4, 2048, 2, 64, lnc=2),
    backward("all keys", 2, 2048, 4),
    backward("striped", 2, 4096, 4, striped=True),
    backward("striped", 2, 4096, 4, lnc=2, striped=True),
]
