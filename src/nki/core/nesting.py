"""How deeply the brackets of a text are nested, because parsers written in C++ go down with them."""

from __future__ import annotations

import re

import numpy as np

MOST = 256
"""Deeper texts are refused; models and compiled programs have a tenth of it."""

_STEPS = np.zeros(256, np.int8)
_STEPS[[ord(c) for c in "([{<"]] = 1
_STEPS[[ord(c) for c in ")]}>"]] = -1
_NOT_NESTED = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|->|[<>]=')


def too_deep(text: str) -> int:
    """The depth of the brackets if it is more than `MOST`, else 0; brackets in strings and comments do not count."""
    if _depth(text) <= MOST:
        return 0
    depth = _depth(_NOT_NESTED.sub("", text))
    return depth if depth > MOST else 0


def _depth(text: str) -> int:
    """The depth, or more where strings have brackets. Arrows close nothing and are left out."""
    data = np.frombuffer(text.replace("->", "").encode("utf-8", "replace"), np.uint8)
    return int(np.cumsum(_STEPS[data], dtype=np.int64).max(initial=0))
