"""Attention of sequences that several ranks share."""

from nkilib.experimental.attention.ring_attention_fwd import ring_attention_spmd_fwd
from nkilib.experimental.attention.ring_attention_unpermute import ring_attention_unpermute

__all__ = ["ring_attention_spmd_fwd", "ring_attention_unpermute"]
