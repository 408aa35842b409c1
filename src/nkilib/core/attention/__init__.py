"""Attention: of prompts, of steps of decoding, and its gradients."""

from nkilib.core.attention.attention_kv_parallel_segmented_cte import attention_kv_parallel_segmented_cte
from nkilib.core.attention.attention_segmented_cte import attention_segmented_cte

__all__ = ["attention_kv_parallel_segmented_cte", "attention_segmented_cte"]
