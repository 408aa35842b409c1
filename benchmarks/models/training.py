"""50 steps of AdamW on the handwritten digits of scikit-learn, on the device and in the framework: loss curves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.models.layers import Classifier, Mlp

from nki.interop.jax import compile

STEPS, BATCH = 50, 32


def available() -> bool:
    """Whether the data can be loaded."""
    return find_spec("sklearn") is not None


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1797 images of 8x8 with values up to 1, and what they show; both are inside the package."""
    found = import_module("sklearn.datasets").load_digits()
    return (found.data / 16.0).astype(np.float32), found.target.astype(np.int64)


def _batches() -> list[tuple[np.ndarray, np.ndarray]]:
    images, labels = digits()
    order = np.random.default_rng(0).permutation(len(labels))
    picks = [order[np.arange(i * BATCH, (i + 1) * BATCH) % len(order)] for i in range(STEPS)]
    return [(images[pick], labels[pick]) for pick in picks]


def _curve(model: torch.nn.Module, run: Callable[..., Any]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for images, labels in _batches():
        loss = F.cross_entropy(run(torch.from_numpy(images)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def in_torch(make: Callable[[], torch.nn.Module], target: str) -> dict[str, Any]:
    """Both curves, of the same weights and batches; the optimizer runs in PyTorch in both."""
    torch.manual_seed(0)
    ours = make()
    theirs = copy.deepcopy(ours)
    torch._dynamo.reset()
    began = perf_counter()
    found = _curve(ours, torch.compile(ours, backend="neuron", options={"target": target} if target else None))
    middle = perf_counter()
    wanted = _curve(theirs, theirs)
    return _compared(found, wanted, middle - began, perf_counter() - middle)


def in_jax(target: str) -> dict[str, Any]:
    """The MLP, with AdamW inside of the compiled step."""

    def loss(p: Any, x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ p["one"] + p["shift"]) @ p["two"]
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(y, 10)).sum(-1).mean()

    def step(state: Any, x: Any, y: Any) -> Any:
        p, m, v, count = state
        value, slopes = jax.value_and_grad(loss)(p, x, y)
        count = count + 1.0
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, slopes)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, slopes)
        rates = 1.0 - 0.9**count, 1.0 - 0.999**count
        p = jax.tree.map(
            lambda w, a, b: w * (1 - 1e-5) - 1e-3 * (a / rates[0]) / (jnp.sqrt(b / rates[1]) + 1e-8), p, m, v
        )
        return (p, m, v, count), value

    generator = np.random.default_rng(0)
    weights = {
        "one": jnp.asarray(generator.standard_normal((64, 128)) / 8, jnp.float32),
        "shift": jnp.zeros(128, jnp.float32),
        "two": jnp.asarray(generator.standard_normal((128, 10)) / 11, jnp.float32),
    }
    curves, seconds = [], []
    for function in (compile(step, target=target), jax.jit(step)):
        zeros = jax.tree.map(jnp.zeros_like, weights)
        state: Any = (weights, zeros, zeros, jnp.float32(0))
        began, losses = perf_counter(), []
        for x, y in _batches():
            state, value = function(state, x, y.astype(np.int32))
            losses.append(float(value))
        curves.append(losses)
        seconds.append(perf_counter() - began)
    return _compared(*curves, *seconds)


def _compared(found: list[float], wanted: list[float], ours: float, theirs: float) -> dict[str, Any]:
    return {
        "first": wanted[0],
        "last": wanted[-1],
        "error": float(np.abs(np.array(found) - np.array(wanted)).max()),
        "run_s": ours / STEPS,
        "framework_s": theirs / STEPS,
        "curve": found,
    }


RUNS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "torch mlp": lambda target: in_torch(Mlp, target),
    "torch 2-layer transformer": lambda target: in_torch(Classifier, target),
    "jax mlp": in_jax,
}
