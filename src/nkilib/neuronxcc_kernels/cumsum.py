"""``kernels.cumsum``: sums along the last dimension."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.cumsum.cumsum import cumsum as _cumsum
from nkilib.neuronxcc_kernels.outputs import give

__all__ = ["cumsum"]


def cumsum(
    x: Any, y: Any, axis: int | None = None, p_size: int | None = None, f_size: int | None = None, acc_dtype: Any = None
) -> None:
    """``y = cumsum(x)`` along the last dimension.

    Args:
        x, y: (..., n) in HBM, of one dtype; y is written.
        axis: the last dimension, by either number, or None.
        p_size, f_size: tiles of the published kernel; this one chooses its own, which is told.
        acc_dtype: float32, or None for it.

    Raises:
        KernelLimit: another axis or dtype of sums.
    """
    limits.one_of("axis", axis, (None, -1, len(x.shape) - 1))
    limits.one_of("acc_dtype", acc_dtype, (None, nl.float32))
    limits.same_dtype(x=x, y=y)
    limits.without_effect("cumsum", "as this kernel chooses its own tiles", p_size=p_size, f_size=f_size)
    give(_cumsum(x, axis=-1), y, "y")
