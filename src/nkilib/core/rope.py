"""Rotary position embeddings, under the documented name."""

from nkilib.core.embeddings.rope import RoPE, RoPE_sbuf

__all__ = ["RoPE", "RoPE_sbuf"]
