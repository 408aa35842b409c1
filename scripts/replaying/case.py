"""A case: a name, and what gives its aspects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

import numpy as np

ASPECTS = ("ir", "streams", "results", "makespan", "error")
"""What is recorded: digests of the IR, of the instruction streams, of the bytes of the results and of the error's text,
and ns on the timing model. A case has the first four, or the last one."""

PATTERNS = ("attention",)
"""Those of the package: what other distributions install decides nothing here."""

Found = Mapping[str, str]


class Case(NamedTuple):
    """Something to replay.

    Attributes:
        name: the same in every process; it begins with the kind.
        run: makes its aspects.
    """

    name: str
    run: Callable[[], Found]


class Numbers:
    """Numbers that are the same on every machine: from integers of NumPy's PCG64, without a function of libm."""

    def __init__(self, name: str) -> None:
        self._generator = np.random.default_rng(crc32(name.encode()))

    def floats(self, shape: tuple[int, ...], scale: float = 2.0) -> np.ndarray:
        """float32 in [-scale, scale), multiples of scale / 2**15."""
        whole = self._generator.integers(-(1 << 15), 1 << 15, shape)
        return (whole * (scale / (1 << 15))).astype(np.float32)

    def below(self, limit: int, shape: tuple[int, ...]) -> np.ndarray:
        """int32 in [0, limit)."""
        return self._generator.integers(0, limit, shape).astype(np.int32)
