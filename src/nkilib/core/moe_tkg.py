"""Mixtures of experts for few tokens."""

from nkilib.core.moe.moe_tkg.moe_tkg import moe_tkg

__all__ = ["moe_tkg"]
