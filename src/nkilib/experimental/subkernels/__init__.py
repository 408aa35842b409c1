"""Parts of larger kernels."""

from nkilib.experimental.subkernels.topk_reduce import topk_reduce

__all__ = ["topk_reduce"]
