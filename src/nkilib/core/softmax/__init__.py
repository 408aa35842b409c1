"""Softmax of rows."""

from nkilib.core.softmax.softmax import softmax, softmax_backward

__all__ = ["softmax", "softmax_backward"]
