"""Casts of every pair of dtypes, against integer arithmetic."""

from __future__ import annotations

import math

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType
from tests.core.cast_reference import decoded, mismatches, rounded, samples
from tests.oracles.casts import cast
from tests.together import together

PLAIN = [d for d in vars(dtypes).values() if isinstance(d, DType) and d.device and not d.is_packed]


PAIRS = [(source, destination) for source in PLAIN for destination in PLAIN]


@together("source, destination", PAIRS)
def test_casts_are_those_of_integer_arithmetic(source: DType, destination: DType) -> None:
    for storage in samples(source, 8):
        result = cast(storage, source, destination)
        if source is destination:
            assert result.tobytes() == storage.tobytes()
        else:
            assert mismatches(rounded(decoded(storage, source), dtypes.float32), result, destination) == 0


def test_the_reference_rounds_by_hand() -> None:
    values = np.float32([2.5, 3.5, -0.4, 300.0, -129.0, math.nan, math.inf])
    assert rounded(values, dtypes.int8).tolist() == [2, 4, 0, 127, -128, 0, 127]
    assert rounded(np.float32([465.0, 464.0, 1.0625]), dtypes.float8_e4m3fn).tolist()[1:] == [448.0, 1.0]
    assert rounded(np.float32([1.4, 1.5, 2.0**-140]), dtypes.float8_e8m0fnu).tolist() == [1.0, 2.0, 2.0**-127]
