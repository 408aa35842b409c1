"""MLP (nki/library/api/mlp.rst)."""

from nkilib.core.mlp.mlp import mlp

__all__ = ["mlp"]
