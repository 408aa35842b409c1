"""``neuronxcc.nki.typing``: annotations of kernels."""

from __future__ import annotations

from nki.typing import TensorAnnotation, mutable_tensor, tensor

mutable = "mutable"
"""``tensor[mutable]`` is what `mutable_tensor` is."""

__all__ = ["TensorAnnotation", "mutable", "mutable_tensor", "tensor"]
