"""MLP (nki/library/api/mlp.rst), and its gradients."""

from nkilib.core.mlp.mlp import mlp
from nkilib.core.mlp.mlp_backward import mlp_backward

__all__ = ["mlp", "mlp_backward"]
