"""Quantization to MXFP8."""

from nkilib.experimental.quantize_mxfp8.quantize_mxfp8 import quantize_block_mxfp8_kernel, should_store_packed_scales

__all__ = ["quantize_block_mxfp8_kernel", "should_store_packed_scales"]
