"""The projection of hidden states to queries, keys and values."""

from nkilib.core.qkv.qkv import qkv

__all__ = ["qkv"]
