"""The word that was probably meant; loaded by every command, and by the list of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """The one of some words that was probably meant; empty if none is close."""
    known = {each.lower(): each for each in words}
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=cutoff)
    return known[close[0]] if close else ""
