"""Options of the old kernels that are enumerations."""

from __future__ import annotations

from nkilib.core.utils.common_types import (
    ActFnType,
    ExpertAffinityScaleMode,
    NormType,
    QKVOutputLayout,
    QuantizationType,
    RouterActFnType,
)

__all__ = [
    "ActFnType",
    "ExpertAffinityScaleMode",
    "NormType",
    "QKVOutputLayout",
    "QuantizationType",
    "RouterActFnType",
]
