"""Functions of nki.language on plain numbers: what Python computes in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

_IN_PYTHON: Mapping[str, str] = MappingProxyType(
    {
        "abs": "abs({0})",
        "add": "{0} + {1}",
        "arctan": "math.atan({0})",
        "bitwise_and": "{0} & {1}",
        "bitwise_or": "{0} | {1}",
        "bitwise_xor": "{0} ^ {1}",
        "ceil": "math.ceil({0})",
        "cos": "math.cos({0})",
        "divide": "{0} / {1}",
        "equal": "{0} == {1}",
        "erf": "math.erf({0})",
        "exp": "math.exp({0})",
        "floor": "math.floor({0})",
        "fmod": "math.fmod({0}, {1})",
        "greater": "{0} > {1}",
        "greater_equal": "{0} >= {1}",
        "left_shift": "{0} << {1}",
        "less": "{0} < {1}",
        "less_equal": "{0} <= {1}",
        "log": "math.log({0})",
        "logical_and": "bool({0} and {1})",
        "logical_not": "not {0}",
        "logical_or": "bool({0} or {1})",
        "maximum": "max({0}, {1})",
        "minimum": "min({0}, {1})",
        "mod": "{0} % {1}",
        "multiply": "{0} * {1}",
        "negative": "-{0}",
        "not_equal": "{0} != {1}",
        "power": "{0} ** {1}",
        "reciprocal": "1 / {0}",
        "relu": "max({0}, 0)",
        "right_shift": "{0} >> {1}",
        "rsqrt": "1 / math.sqrt({0})",
        "sigmoid": "1 / (1 + math.exp(-{0}))",
        "sin": "math.sin({0})",
        "sqrt": "math.sqrt({0})",
        "square": "{0} ** 2",
        "subtract": "{0} - {1}",
        "tan": "math.tan({0})",
        "tanh": "math.tanh({0})",
        "trunc": "math.trunc({0})",
    }
)


def in_python(function: str, values: Sequence[Any]) -> str:
    """An expression of Python for ``nl.function(*values)``; "" if Python has no such function of so many numbers."""
    try:
        return _IN_PYTHON.get(function, "").format(*(_literal(value) for value in values))
    except IndexError:
        return ""


def _literal(value: Any) -> str:
    """A number as an operand of any operator."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return f"({text})" if text.startswith("-") else text
