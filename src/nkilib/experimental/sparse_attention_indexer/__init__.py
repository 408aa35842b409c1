"""Which keys each query of sparse attention looks at: scores by a few small heads, and the largest of them."""

from nkilib.experimental.sparse_attention_indexer.sparse_attention_indexer_mx_bf16score import (
    sparse_attention_indexer_mx_bf16score,
)

__all__ = ["sparse_attention_indexer_mx_bf16score"]
