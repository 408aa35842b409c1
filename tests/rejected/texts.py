"""Texts of kernels that are changed and run."""

from __future__ import annotations

import linecache
from textwrap import dedent as dedent


def kept_text(source: str, name: str) -> None:
    """Let Python find a text by the name of a file that there is not."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
