"""What the tuner chooses among the settings of a published sweep, against the times that were measured of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from benchmarks.timing_cases.comparison import listed
from benchmarks.timing_cases.public_products import blocked
from benchmarks.timing_cases.public_shapes import NARROW, SWEEP, WIDE, sweep_name

import nki

FIRST, *OTHERS = SWEEP


def both(a: Any, wide: Any, narrow: Any, caps: tuple[int, int, int] = FIRST) -> Any:
    """The two products whose times the sweep adds up."""
    return blocked(a, wide, caps), blocked(a, narrow, caps)


@pytest.mark.slow
def test_the_tuner_chooses_a_setting_that_is_measured_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    depth, rows, columns = WIDE
    shapes = (depth, rows), (depth, columns), (depth, NARROW[2])
    kernel = nki.autotune(configs=[{"caps": caps} for caps in OTHERS], key="a")(nki.jit(both))
    tuned = kernel.tune(*(np.zeros(shape, ml_dtypes.bfloat16) for shape in shapes))
    measured = {item["id"]: item["measured"] for item in listed()["point"]}
    times = {str(caps): measured[sweep_name(caps)] for caps in SWEEP}
    chosen = tuned.chosen.label.removeprefix("caps=") if not tuned.chosen.default else str(FIRST)
    assert times[chosen] <= 1.02 * min(times.values())
