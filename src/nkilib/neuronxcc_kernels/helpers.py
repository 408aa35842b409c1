"""``_pre_prod_kernels.util.kernel_helpers``: what old kernels ask of their launch."""

from __future__ import annotations

from nkilib.core.utils.kernel_helpers import get_program_sharding_info, get_verified_program_sharding_info

__all__ = ["get_program_sharding_info", "get_verified_program_sharding_info"]

PLAIN = frozenset(__all__)
"""What is no kernel."""
