"""Sums of all elements up to each one, under the documented name."""

from nkilib.core.cumsum.cumsum import cumsum

__all__ = ["cumsum"]
