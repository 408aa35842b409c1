"""Numbers of 8 bits in SBUF, for kernels that go on with them."""

from nkilib.core.quantization.fp8_quantize import (
    pre_combine_dequant_scales,
    row_quantization,
    static_quantization,
)

__all__ = ["pre_combine_dequant_scales", "row_quantization", "static_quantization"]
