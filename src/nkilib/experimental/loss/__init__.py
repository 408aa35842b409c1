"""Losses and their gradients."""

from nkilib.experimental.loss.cross_entropy import cross_entropy_backward, cross_entropy_forward

__all__ = ["cross_entropy_backward", "cross_entropy_forward"]
