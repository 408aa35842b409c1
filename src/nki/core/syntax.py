"""Syntax trees, by one thread at a time.

Python 3.11 counts the depth of the tree that it makes in one place for all threads, and fails with a SystemError where
two of them change places meanwhile (python/cpython issue 106905).
"""

from __future__ import annotations

import ast
from typing import Any

from nki.core.locks import rlock

_LOCK = rlock()


def parsed(text: str, **settings: Any) -> Any:
    """`ast.parse`, with its settings and errors."""
    with _LOCK:
        return ast.parse(text, **settings)
