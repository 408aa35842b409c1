"""Parts of larger kernels."""

from nkilib.experimental.subkernels.argsort_unstable import argsort_unstable
from nkilib.experimental.subkernels.permute_routed_tokens import permute_routed_tokens
from nkilib.experimental.subkernels.topk_reduce import topk_reduce

__all__ = ["argsort_unstable", "permute_routed_tokens", "topk_reduce"]
