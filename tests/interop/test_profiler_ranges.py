"""Ranges of this package in the profilers of frameworks, and nothing while they do not record."""

from __future__ import annotations

import gzip
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.interop.jax import profiler_ranges
from nki.interop.torch import profiler_ranges as torch_ranges

_DOUBLE = """
func.func @main(%x: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %0 = stablehlo.add %x, %x : tensor<128x64xf32>
  return %0 : tensor<128x64xf32>
}
"""
_NAMES = {"nki framework: call double", "nki runtime: execute"}


@pytest.fixture
def double() -> Executable:
    torch_ranges.install()
    profiler_ranges.install()
    return compile_module(_DOUBLE, target="trn2", name="double")


def _run(model: Executable) -> None:
    assert (model.run([np.ones((128, 64), np.float32)])[0] == 2).all()


def test_ranges_are_in_pytorchs_profile(double: Executable) -> None:
    _run(double)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        _run(double)
    found = {event.key: event.count for event in profile.key_averages() if event.key.startswith("nki")}
    assert found == dict.fromkeys(_NAMES, 1)


def test_ranges_are_in_jaxs_trace(double: Executable, tmp_path: Path) -> None:
    with jax.profiler.trace(tmp_path):
        _run(double)
    (file,) = tmp_path.rglob("*.trace.json.gz")
    text = gzip.decompress(file.read_bytes()).decode()
    assert all(name in text for name in _NAMES)
