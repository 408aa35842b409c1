"""Norm and router before the experts of a mixture."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.utils.common_types import RouterActFnType


def _routed(
    name: str,
    tokens: int,
    hidden: int,
    experts: int,
    k: int,
    act: RouterActFnType,
    lnc: int = 1,
) -> Case:
    def arguments(make: Make) -> dict[str, Any]:
        small = lambda rng, shape: rng.standard_normal(shape) / np.sqrt(hidden)  # noqa: E731
        return {
            "hidden_states": make((tokens, 1, hidden)),
            "gamma": make((1, hidden), fill=lambda rng, shape: rng.uniform(0.5, 1.5, shape)),
            "router_weights": make((hidden, experts), fill=small),
            "router_bias": make((1, experts), fill=small),
            "top_k": k,
            "router_act_fn": act,
        }

    return Case(
        kernel="rmsnorm_router_topk_tkg",
        name=f"{name}, {tokens} x {hidden}, {k} of {experts} experts",
        arguments=arguments,
        flops=2 * tokens * hidden * experts,
        hbm_bytes=2 * (2 * tokens * hidden + hidden * experts + tokens * experts + 2 * tokens * k),
        lnc=lnc,
        small=lambda make: arguments(make) | {"router_mm_dtype": nl.float32},  # the same experts are chosen then
        official=False,
    )


CASES = [
    _routed("gpt-oss", 256, 3072, 128, 4, RouterActFnType.SOFTMAX),
    _routed("DeepSeek", 512, 7168, 256, 8, RouterActFnType.SIGMOID),
    _routed("Qwen3", 256, 4096, 128, 8, RouterActFnType.SOFTMAX, lnc=2),
]
