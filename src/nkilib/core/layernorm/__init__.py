"""Normalisation of rows to mean 0 and variance 1."""

from nkilib.core.layernorm.layer_norm import layer_norm, layer_norm_backward

__all__ = ["layer_norm", "layer_norm_backward"]
