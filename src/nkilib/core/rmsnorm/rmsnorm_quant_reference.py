"""RMS norm with quantisation in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import nki.language as nl
from nkilib.core.utils.common_types import DtypeMode


def rmsnorm_quant_kernel_reference(
    hidden: NDArray,
    ln_w: NDArray | None,
    kargs: Any,
    input_dequant_scale: NDArray | None = None,
    pre_norm_gamma: NDArray | None = None,
    residual: NDArray | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> NDArray | tuple[NDArray, NDArray]:
    """See `rmsnorm_quant_kernel`; AUTO is NON_OCP."""
    format_, largest = (nl.float8_e4m3fn, 448.0) if dtype_mode is DtypeMode.OCP else (nl.float8_e4m3, 240.0)
    h = hidden.astype(np.float64)
    if pre_norm_gamma is not None:
        h = _normal(h, pre_norm_gamma, kargs.eps)
    if residual is not None:
        h = h + residual.astype(np.float64)
    h = h.astype(hidden.dtype).astype(np.float64)
    n = _normal(h, ln_w, kargs.eps) if kargs.needs_rms_normalization() and ln_w is not None else h
    if input_dequant_scale is not None:
        out = np.clip(n / input_dequant_scale[0, 0], -largest, largest).astype(format_.numpy)
    else:
        bound = kargs.lower_bound if kargs.has_lower_bound() else np.inf
        n = np.clip(n, -bound, bound)
        scale = np.maximum(np.abs(n).max(-1, keepdims=True) / largest, 1e-6)
        tail = scale.astype(np.float32).view(format_.numpy)
        out = np.concatenate([(n / scale).astype(format_.numpy), tail], -1)
    return out if residual is None else (out, h.astype(hidden.dtype))


def _normal(x: NDArray, gamma: NDArray, eps: float) -> NDArray:
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * gamma.astype(np.float64).reshape(-1)
