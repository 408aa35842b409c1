"""``_private_kernels.blockwise_mm``: which transfers of a mixture of experts are left out."""

from __future__ import annotations

from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode

__all__ = ["SkipMode"]
