"""Errors of kernels of the first NKI: the codes are those of its published list of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki.core.errors import FrontendError
from nki.core.source import Location

DOCUMENT = "nki/api/nki.errors.rst (NKI 0.1)"


class Beta1Error(FrontendError):
    """A kernel of the first NKI breaks one of its rules."""


class Beta1TypeError(Beta1Error, TypeError):
    """A value of a kind that the first NKI does not take here."""


class Beta1ValueError(Beta1Error, ValueError):
    """A value that has no truth value, or none that is known while the kernel is traced."""


class Beta1IndexError(Beta1Error, IndexError):
    """An index outside of a tensor."""


def refused(
    code: str,
    message: str,
    fix: str,
    *,
    rule: str = "",
    facts: Mapping[str, Any] | None = None,
    kind: type[Beta1Error] = Beta1Error,
    location: Location | None = None,
) -> Beta1Error:
    """The error with a code of the published list, without its ``err_`` in front (``beta1.<code>``)."""
    return kind(f"beta1.{code}", message, fix=fix, rule=rule, source=DOCUMENT, facts=facts, location=location)


def condition_on_arange() -> Exception:
    """The error for control flow on what varies within a tile."""
    return refused(
        "control_flow_condition_depending_on_arange",
        "control flow depends on nl.arange or nl.mgrid",
        "give the condition to mask=, and join conditions with & instead of `and`",
        rule="a condition of Python is one value for all elements of a tile",
        kind=Beta1ValueError,
    )
