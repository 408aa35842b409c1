"""Steps of optimizers."""

from nkilib.experimental.optimizer.fused_adam import adam_kernel, adamw_kernel

__all__ = ["adam_kernel", "adamw_kernel"]
