"""The largest elements of rows."""

from nkilib.core.topk.rotational_topk import (
    RotationalTopkConfig,
    SupportedTopkMethods,
    TopkConfig,
    cleanup_rotational_constants,
    create_rotational_topk_config,
    create_topk_config,
    prepare_rotational_constants,
    rotational_topk,
    topk,
)

__all__ = [
    "RotationalTopkConfig",
    "SupportedTopkMethods",
    "TopkConfig",
    "cleanup_rotational_constants",
    "create_rotational_topk_config",
    "create_topk_config",
    "prepare_rotational_constants",
    "rotational_topk",
    "topk",
]
