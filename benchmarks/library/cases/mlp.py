"""MLPs of Llama-3-8B, of a 1B model, and with what stands around an MLP in a layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.utils.common_types import NormType, QuantizationType


def _case(name: str, tokens: int, features: int, inner: int, *, small: int = 0, **options: Any) -> Case:
    """A gated MLP; `small` divides the sizes of the run that measures the error."""
    options = dict(options)
    norm, add = options.pop("norm", NormType.NO_NORM), options.pop("add", False)
    kind, lnc = options.pop("quantization", QuantizationType.NONE), options.pop("lnc", 1)
    official = options.pop("official", True)
    fp8 = kind is not QuantizationType.NONE

    def arguments(make: Make, divisor: int = 1) -> dict[str, Any]:
        h, i, weight = features // divisor, inner // divisor, nl.float8_e4m3 if fp8 else nl.bfloat16

        def matrix(rows: int, columns: int) -> Any:
            return make((rows, columns), weight, lambda rng, shape: rng.standard_normal(shape) * rows**-0.5)

        found: dict[str, Any] = {
            "hidden_tensor": make((1, max(1, tokens // divisor), h)),
            "gate_proj_weights_tensor": matrix(h, i),
            "up_proj_weights_tensor": matrix(h, i),
            "down_proj_weights_tensor": matrix(i, h),
        }
        if norm is not NormType.NO_NORM:
            found |= {"normalization_type": norm, "normalization_weights_tensor": make((1, h), nl.bfloat16, _near_one)}
        if add:
            found |= {"fused_add_tensor": make((1, max(1, tokens // divisor), h)), "store_fused_add_result": True}
        if fp8:
            found["quantization_type"] = kind
            row = kind is QuantizationType.ROW
            for weights, columns in (("gate", i), ("up", i), ("down", h)):
                found[f"{weights}_w_scale"] = make((128, columns if row else 1), nl.float32, _alike)
            for name in () if row else ("gate_up_in_scale", "down_in_scale"):
                found[name] = make((128, 1), nl.float32, lambda rng, shape: np.full(shape, 1 / 32))
        return found | options

    moved = tokens * features * 2 * (4 if add else 2) + 3 * features * inner * (1 if fp8 else 2)
    return Case(
        kernel="mlp",
        name=name,
        arguments=arguments,
        flops=6 * tokens * features * inner,
        hbm_bytes=moved,
        lnc=lnc,
        small=(lambda make: arguments(make, small)) if small else None,
        official=official,
        peak="fp8" if kind is QuantizationType.STATIC else "bf16",
    )


def _backward_case(name: str, tokens: int, features: int, inner: int, small: int) -> Case:
    """Gradients of tokens and weights: g and u again, and two products for each of the weights."""

    def arguments(make: Make, divisor: int = 1) -> dict[str, Any]:
        t, h, i = (size // divisor for size in (tokens, features, inner))

        def matrix(rows: int, columns: int) -> Any:
            return make((rows, columns), nl.bfloat16, lambda rng, shape: rng.standard_normal(shape) * rows**-0.5)

        return {
            "hidden_tensor": make((1, t, h)),
            "gate_proj_weights_tensor": matrix(h, i),
            "up_proj_weights_tensor": matrix(h, i),
            "down_proj_weights_tensor": matrix(i, h),
            "gradient": make((1, t, h)),
        }

    return Case(
        kernel="mlp_backward",
        name=name,
        arguments=arguments,
        flops=16 * tokens * features * inner,
        hbm_bytes=2 * (3 * tokens * features + 6 * features * inner),
        small=lambda make: arguments(make, small),
        official=False,
    )


def _alike(rng: Any, shape: tuple[int, ...]) -> Any:
    """Scales: the same row on all partitions."""
    return rng.uniform(0.5, 1.5, (1, *shape[1:])).repeat(shape[0], 0)


def _near_one(rng: Any, shape: tuple[int, ...]) -> Any:
    return 1 + 0.1 * rng.standard_normal(shape)


RMS = NormType.RMS_NORM

CASES = [
    _case("Llama-3-8B, 2,048 tokens", 2048, 4096, 14336, small=16),
    _case("Llama-3-8B, 4 tokens", 4, 4096, 14336, small=8),
    _case("Llama-3-8B, 128 tokens", 128, 4096, 14336, small=8),
    _case("Llama-3-8B, 4 tokens, ROW", 4, 4096, 14336, small=8, quantization=QuantizationType.ROW),
    _case(
        "eighth of Llama-3-8B, norm and residual, 1,024 tokens",
        1024,
        4096,
        1792,
        small=8,
        norm=NormType.RMS_NORM,
        add=True,
    ),
    _case("quarter of Llama-3-8B, norm, 4 tokens", 4, 4096, 3584, small=8, norm=NormType.RMS_NORM),
    _case("1B, 512 tokens", 512, 2048, 5632, small=4),
    _case("1B, part of 1,024, 512 tokens", 512, 2048, 1024, small=4),
    _case("1B, 4 tokens", 4, 2048, 5632, small=4),
    _case("Llama-3-8B, 2,048 tokens", 2048, 4096, 14336, small=16, lnc=2),
    _case("Llama-3-8B, 4 tokens", 4, 4096, 14336, small=8, lnc=2),
    _case("1B, 512 tokens", 512, 2048, 5632, small=4, lnc=2),
    _backward_case("1B, part of 1,024, 512 tokens", 512, 2048, 1024, 4),
    _backward_case("Llama-3-8B, 2,048 tokens", 2048, 4096, 14336, 16),
    _case("Llama-3-8B, 2,048 tokens, STATIC", 2048, 4096, 14336, small=16, quantization=QuantizationType.STATIC),
    _case("eighth of Llama-3-70B, 2,048 tokens", 2048, 8192, 3584, small=16),
]
