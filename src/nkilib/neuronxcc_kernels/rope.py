"""``_private_kernels.RoPE``: heads that are rotated in SBUF."""

from __future__ import annotations

from typing import Any

from nkilib import limits
from nkilib.core.embeddings.rope import RoPE_sbuf as _turned

__all__ = ["RoPE_sbuf"]


def RoPE_sbuf(x_in_sb: Any, cos_sb: Any, sin_sb: Any, x_out_sb: Any) -> None:
    """Rotate one head, whose pairs are elements of its two halves.

    Args:
        x_in_sb: (d, S) in SBUF.
        cos_sb, sin_sb: (d / 2, S) in SBUF.
        x_out_sb: (d, S) in SBUF, written.

    Raises:
        KernelLimit: other shapes, and what `nkilib.core.embeddings.rope.RoPE_sbuf` refuses.
    """
    sizes = limits.shape("x_in_sb", x_in_sb, ("d", "S"))
    limits.shape("x_out_sb", x_out_sb, ("d", "S"), sizes)
    head, new = sizes["d"], sizes["S"]
    for name, tensor in (("cos_sb", cos_sb), ("sin_sb", sin_sb)):
        limits.shape(name, tensor, (head // 2, new))
    x, out = (each.reshape((head, 1, 1, new)) for each in (x_in_sb, x_out_sb))
    cos, sin = (each.reshape((head // 2, 1, new)) for each in (cos_sb, sin_sb))
    _turned(x, cos, sin, out)
