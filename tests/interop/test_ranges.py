"""Compilation and execution are ranges in the profilers of PyTorch and JAX, while they record."""

from __future__ import annotations

import gzip
from pathlib import Path

import jax
import jax.numpy as jnp
import torch
from torch.profiler import ProfilerActivity, profile

import nki.interop.torch  # noqa: F401  the backend "neuron"
from nki.interop.jax import compile


def test_ranges_in_the_profiler_of_torch() -> None:
    torch.compiler.reset()
    function, x = torch.compile(lambda x: x.exp() + 1, backend="neuron", fullgraph=True), torch.ones(3, 5)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(2):
            function(x)
    counts = {event.key: event.count for event in found.key_averages() if event.key.startswith("nki ")}
    compiled = [key for key in counts if key.startswith("nki compile: compile inference_")]
    assert [counts[key] for key in compiled] == [1], counts
    assert counts["nki runtime: execute"] == 2
    with profile(activities=[ProfilerActivity.CPU]) as none:
        torch.ones(3)
    assert not [event for event in none.key_averages() if event.key.startswith("nki ")]


def test_ranges_in_the_profiler_of_jax(tmp_path: Path) -> None:
    function = compile(lambda x: jnp.tanh(x) + 1)
    with jax.profiler.trace(str(tmp_path)):
        function(jnp.ones((3, 5)))
    (file,) = tmp_path.rglob("*.trace.json.gz")
    text = gzip.decompress(file.read_bytes()).decode()
    assert "nki compile: compile" in text
    assert "nki runtime: execute" in text
