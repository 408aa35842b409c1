"""Attention: of prompts, of steps of decoding, and its gradients."""

from nkilib.core.attention.attention_segmented_cte import attention_segmented_cte

__all__ = ["attention_segmented_cte"]
