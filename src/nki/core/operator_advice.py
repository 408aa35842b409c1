"""What to write in place of a Python operator on tensors, where it is more than one function of the same name."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import NamedTuple

from nki.core.source import here, text_of


class Written(NamedTuple):
    """An operand of an operator.

    Attributes:
        text: how the advice names it.
        number: its value if it is a plain number; None for tensors and arrays.
        integer: whether it is an integer, or holds integers.
    """

    text: str
    number: float | None
    integer: bool


Advice = Callable[[Written, Written], str]


def function(template: str) -> Advice:
    """Advice that only fills in the operands; `template` has the names x and y."""
    return lambda x, y: template.format(x=x.text, y=y.text)


def quotient(x: Written, y: Written) -> str:
    """``x / y``: no engine divides (release-notes/components/nki.rst, known issues of NKI 0.3 and 0.4)."""
    return _times_inverse(x.text, x, y)


def floor_quotient(x: Written, y: Written) -> str:
    """``x // y``; quotients of integers are kept half a step away from where rounding would reach the next one."""
    if not (x.integer and y.integer):
        return f"nl.floor({quotient(x, y)})"
    half = -0.5 if y.number is not None and y.number < 0 else 0.5
    if x.number is not None:
        return f"nl.floor({_times_inverse(repr(x.number + half), x, y)}, dtype=nl.int32)"
    moved = x._replace(text=f"nl.add({x.text}, {half}, dtype=nl.float32)", integer=False)
    return f"nl.floor({_times_inverse(moved.text, moved, y)}, dtype=nl.int32)"


def _times_inverse(text: str, x: Written, y: Written) -> str:
    """Integers become float32 first, because results have the dtype of the tile."""
    if y.number is None:
        return f"nl.multiply({text}, nl.reciprocal({y.text}{', dtype=nl.float32' if y.integer else ''}))"
    inverse = f"1 / {y.text}" if y.number else "float('inf')"
    return f"nl.multiply({text}, {inverse}{', dtype=nl.float32' if x.integer else ''})"


_POWERS = {2: "nl.square({x})", 0.5: "nl.sqrt({x})"}


def power(x: Written, y: Written) -> str:
    """``x ** y``; exponents that have a function of their own need no tile of exponents."""
    named = _POWERS.get(y.number) if y.number is not None else None
    return (named or "nl.power({x}, {y})").format(x=x.text, y=y.text)


def comparison(name: str) -> Advice:
    """``x < y`` and the like: Python often asks for them on behalf of ``max``, ``if`` or ``and``."""

    def advice(x: Written, y: Written) -> str:
        frame = here().frame
        for builtin in ("max", "min"):
            if text_of(frame).startswith(f"{builtin}("):
                return f"nl.{builtin}imum({x.text}, {y.text})"
        mask = f"nl.{name}({x.text}, {y.text})"
        words = set() if frame is None else set(re.findall(r"[a-z]+", linecache.getline(frame.file, frame.line)))
        if words & {"and", "or"}:
            return f"{mask}, and combine masks with nl.logical_{'and' if 'and' in words else 'or'}(mask, mask)"
        if words & {"if", "elif"}:
            return f"{mask}, and nl.where(mask, a, b) in place of if: it chooses for each element"
        return mask

    return advice
