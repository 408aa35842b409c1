"""``op=nl.max`` and ``op=nl.min``: functions of nki.language that stood for operators in the second beta of NKI."""

from __future__ import annotations

from typing import Any

from nki.core.source import here
from nki.spec.operator import Operator, operator_of, public_operator
from nki.spec.rule import Finding
from nki.spec.sink import active_sink

_REDUCTIONS = {"max": "maximum", "min": "minimum"}


def named_operator(value: Any, role: str, example: str) -> Operator:
    """`operator_of`, which takes these two functions as well, and tells.

    Raises:
        ArgumentError: "operand.operator".
    """
    name = getattr(value, "__name__", "")
    sink = active_sink() if name in _REDUCTIONS and not isinstance(value, Operator) else None
    if sink is None or not getattr(value, "__module__", "").startswith("nki.language"):
        return operator_of(value, role, example)
    if "operand.older-operator" not in sink.options.disabled_rules:
        sink.report(
            Finding(
                "operand.older-operator",
                "warning",
                f"{role} is nl.{name}, which is a function",
                "an operator has a name of its own: nl.maximum and nl.minimum",
                "nki/api/nki.api.shared.rst",
                f"pass nl.{_REDUCTIONS[name]}",
                here(),
                {},
            )
        )
    return public_operator(_REDUCTIONS[name])
