"""The largest elements of rows."""

from nkilib.core.topk.rotational_topk import (
    RotationalTopkConfig,
    SupportedTopkMethods,
    TopkConfig,
    create_rotational_topk_config,
    create_topk_config,
    rotational_topk,
    topk,
)

__all__ = [
    "RotationalTopkConfig",
    "SupportedTopkMethods",
    "TopkConfig",
    "create_rotational_topk_config",
    "create_topk_config",
    "rotational_topk",
    "topk",
]
