"""Constants all of whose elements are the same."""

from __future__ import annotations

import numpy as np

from nki.graph.ir import Op


def is_splat(op: Op) -> bool:
    """A constant that a kernel holds as a number: one element, or strides of 0."""
    value = op.attributes.get("value")
    return (
        op.name == "constant"
        and isinstance(value, np.ndarray)
        and value.size > 0
        and not any(stride for stride, size in zip(value.strides, value.shape, strict=True) if size > 1)
    )
