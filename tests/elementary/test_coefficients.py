"""The coefficients are what scripts/fit_elementary.py makes, and float32."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki.elementary import coefficients

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_elementary", ROOT / "scripts" / "fit_elementary.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fit_elementary", module)  # where its dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


def test_the_fit_script_reproduces_the_coefficients(script: ModuleType) -> None:
    assert script.text() == Path(coefficients.__file__).read_text(encoding="utf-8")


def test_coefficients_are_float32(script: ModuleType) -> None:
    for fit in script.FITS:
        for value in getattr(coefficients, fit.name):
            assert float(np.float32(value)) == value


def test_fits_are_better_than_float32(script: ModuleType) -> None:
    for fit in script.FITS:
        assert script.fitted_error(fit, np.float32(getattr(coefficients, fit.name))) < 2.0**-25.5
