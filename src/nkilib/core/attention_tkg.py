"""Attention of a step of decoding, under the documented name."""

from nkilib.core.attention.attention_tkg import attention_tkg
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig

__all__ = ["AttnTKGConfig", "attention_tkg"]
