"""The attention half of a layer in a decoding step, under the documented name."""

from nkilib.experimental.transformer.attention_block_tkg import attention_block_tkg

__all__ = ["attention_block_tkg"]
