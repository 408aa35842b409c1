"""Kernels for large parts of a transformer's layer, with everything between in SBUF."""

from nkilib.experimental.transformer.transformer_tkg import transformer_tkg

__all__ = ["transformer_tkg"]
