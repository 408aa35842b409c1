"""What `mla_vupmx_oproj_cte_kernel` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.experimental.mla.deepseek.packed_reference import quantized, rounded, weights


def mla_vupmx_oproj_cte_kernel_reference(
    out_attn_hbm: Any, wuv_qtz_hbm: Any, wuv_scale_hbm: Any, wo_qtz_hbm: Any, wo_scale_hbm: Any
) -> Any:
    """The projection of quantized values of quantized latents in float64."""
    latents = np.asarray(out_attn_hbm).astype(np.float64)
    batch, tokens, width = latents.shape
    natural = latents.reshape(batch, tokens, width // 512, 4, 128).swapaxes(-1, -2).reshape(batch, tokens, -1, 512)
    up = weights(wuv_qtz_hbm, wuv_scale_hbm).reshape(width // 512, 512, -1)
    values = rounded(np.einsum("bshl,hld->bshd", quantized(natural), up)).reshape(batch, tokens, -1)
    return quantized(values) @ weights(wo_qtz_hbm, wo_scale_hbm)
