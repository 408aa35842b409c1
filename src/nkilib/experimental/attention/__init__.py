"""Attention of sequences that several ranks share, and blocks of attention with a sliding window."""

from nkilib.experimental.attention.ring_attention_bwd import ring_attention_spmd_bwd
from nkilib.experimental.attention.ring_attention_fwd import ring_attention_spmd_fwd
from nkilib.experimental.attention.ring_attention_unpermute import ring_attention_unpermute
from nkilib.experimental.attention.swa_fused_cte import swa_fused_cte

__all__ = ["ring_attention_spmd_bwd", "ring_attention_spmd_fwd", "ring_attention_unpermute", "swa_fused_cte"]
