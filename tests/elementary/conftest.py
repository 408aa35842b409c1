"""Floating-point warnings are off, as while kernels run: values that a selection drops may overflow or be NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(scope="module", autouse=True)
def no_warnings() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
