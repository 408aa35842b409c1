"""Kernels that others are put together from."""

from nkilib.core.subkernels.find_nonzero_indices import find_nonzero_indices

__all__ = ["find_nonzero_indices"]
