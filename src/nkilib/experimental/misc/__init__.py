"""Rows that indices choose: gathered, and added to (nki/library/api/gather.rst, scatter-add.rst)."""

from nkilib.experimental.misc.gather import gather
from nkilib.experimental.misc.scatter_add import scatter_add

__all__ = ["gather", "scatter_add"]
