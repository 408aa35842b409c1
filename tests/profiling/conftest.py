"""Every profile of these tests is of Trainium2."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fixed_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    monkeypatch.delenv("NKI_SIMULATOR", raising=False)
