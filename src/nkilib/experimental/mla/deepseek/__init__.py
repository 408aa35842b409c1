"""Latent attention of DeepSeek: projections with absorbed weights, sparse attention, and the projection after it."""

from nkilib.experimental.mla.deepseek.mla_qkv_cte import mla_qkv_cte_kernel
from nkilib.experimental.mla.deepseek.mla_sparse_attention_cte import mla_sparse_attention_cte_kernel
from nkilib.experimental.mla.deepseek.mla_vup_oproj_cte import mla_vupmx_oproj_cte_kernel

__all__ = ["mla_qkv_cte_kernel", "mla_sparse_attention_cte_kernel", "mla_vupmx_oproj_cte_kernel"]
