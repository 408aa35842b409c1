"""Kernels whose amount of work is known when they run."""

from nkilib.experimental.dynamic_shapes.dynamic_elementwise_add import dynamic_elementwise_add

__all__ = ["dynamic_elementwise_add"]
