"""What compiled functions share in a call: scratch memory, helpers, and the base addresses of the buffers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np

from nki.native.operand_layout import BASES
from nki.native.primitives.scratch import PRODUCT_BYTES

SCRATCH_BYTES = max(8 * (256 << 10) + (1 << 20), PRODUCT_BYTES)
_ALIGNMENT = 64
ABSOLUTE = 0
"""The base whose address is 0, so that an offset is an address."""


class CallContext:
    """The words that every function gets, and the memory behind them.

    Attributes:
        words: int64; `address` is where they are.
    """

    __slots__ = ("_scratch", "address", "words")

    def __init__(self, helpers: Mapping[int, int], bases: int = 1) -> None:
        """`helpers` are words by position; `bases` is how many base addresses there are."""
        self._scratch = np.empty(SCRATCH_BYTES + _ALIGNMENT, np.uint8)
        self.words = array("q", [0] * (BASES + bases))
        start = address_of(self._scratch)
        self.words[0] = start + -start % _ALIGNMENT
        for at, word in helpers.items():
            self.words[at] = word
        self.address = self.words.buffer_info()[0]

    def base(self, number: int, address: int) -> None:
        """Set a base address."""
        self.words[BASES + number] = address


def address_of(memory: np.ndarray) -> int:
    """Where the first byte of an array is."""
    address: int = memory.__array_interface__["data"][0]
    return address
