"""The largest elements of rows, by GpSimd."""

from nkilib.experimental.topk.gpsimd_topk import GpsimdTopkConfig, create_gpsimd_topk_config, gpsimd_topk

__all__ = ["GpsimdTopkConfig", "create_gpsimd_topk_config", "gpsimd_topk"]
