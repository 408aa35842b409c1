"""Products of MXFP8 matrices."""

from nkilib.experimental.matmul_mxfp8.matmul_mxfp8_generic_kernel import matmul_mxfp8

__all__ = ["matmul_mxfp8"]
