"""RMS norm with quantisation, under the documented name."""

from nkilib.core.rmsnorm.rmsnorm_quant import RmsNormQuantKernelArgs, rmsnorm_quant_kernel

__all__ = ["RmsNormQuantKernelArgs", "rmsnorm_quant_kernel"]
