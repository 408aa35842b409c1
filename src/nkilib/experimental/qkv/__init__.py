"""Projections of hidden states to queries, keys and values whose weights come as factors of low rank."""

from nkilib.experimental.qkv.qkv_cte_mla import qkv_mla_mx
from nkilib.experimental.qkv.qkv_cte_mla_v4 import qkv_mla_mx_deepseek_v4

__all__ = ["qkv_mla_mx", "qkv_mla_mx_deepseek_v4"]
