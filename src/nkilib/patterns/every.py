"""All patterns of this library, for who wants them without an installed distribution::

from nki.graph.patterns import register
from nkilib.patterns.every import PATTERNS

for pattern in PATTERNS:
    register(pattern)
"""

from __future__ import annotations

from nkilib.patterns.attention_bwd import ATTENTION_BWD
from nkilib.patterns.attention_cache import ATTENTION_CACHE
from nkilib.patterns.attention_decode import ATTENTION_DECODE
from nkilib.patterns.attention_output import ATTENTION_OUTPUT
from nkilib.patterns.attention_prefill import ATTENTION_PREFILL
from nkilib.patterns.attention_qkv import ATTENTION_QKV
from nkilib.patterns.cross_entropy import CROSS_ENTROPY_BACKWARD, CROSS_ENTROPY_FORWARD
from nkilib.patterns.mlp import MLP
from nkilib.patterns.moe import MOE_CTE, MOE_TKG
from nkilib.patterns.norms import LAYER_NORM, RMS_NORM

PATTERNS = (
    ATTENTION_BWD,
    ATTENTION_CACHE,
    ATTENTION_DECODE,
    ATTENTION_OUTPUT,
    ATTENTION_PREFILL,
    ATTENTION_QKV,
    CROSS_ENTROPY_BACKWARD,
    CROSS_ENTROPY_FORWARD,
    MLP,
    MOE_CTE,
    MOE_TKG,
    LAYER_NORM,
    RMS_NORM,
)
"""In the order of their names, as entry points are asked: larger parts come before those that they are made of."""
