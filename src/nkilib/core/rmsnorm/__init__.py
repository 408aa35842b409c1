"""Normalisation of rows by the root of their mean square."""

from nkilib.core.rmsnorm.rms_norm import rms_norm, rms_norm_backward

__all__ = ["rms_norm", "rms_norm_backward"]
