"""Kernels for parts of models: how a pattern is written and made known. Everything that one needs is here.

A distribution makes its patterns known with entry points of the group ``nki.patterns``, a process with `register`.
"""

from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.kinds import ELEMENTWISE, combiner, is_pointwise
from nki.graph.passes.lossless import computed_alike, lossless
from nki.graph.passes.rewriter import Rewriter
from nki.graph.patterns.known_values import known
from nki.graph.patterns.pattern import Choose, Match, Matcher, NearMiss, Pattern
from nki.graph.patterns.recognition import either_way, match_rms_norm, unconverted
from nki.graph.patterns.registry import register, register_pattern, unregister

__all__ = [
    "ELEMENTWISE",
    "Choose",
    "Match",
    "Matcher",
    "NearMiss",
    "Op",
    "Pattern",
    "Rewriter",
    "TensorType",
    "Value",
    "combiner",
    "computed_alike",
    "either_way",
    "is_pointwise",
    "known",
    "lossless",
    "match_rms_norm",
    "register",
    "register_pattern",
    "unconverted",
    "unregister",
]
