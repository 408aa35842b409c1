"""50 steps of AdamW on the handwritten digits of scikit-learn, on the device and in the framework: loss curves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.models.jax_models import block
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


def _curve(model: torch.nn.Module, run: Callable[..., Any]) -> tuple[list[float], list[float]]:
    """Losses, and the processor's seconds of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses, seconds = [], []
    for images, labels in _batches():
        began = process_time()
        loss = F.cross_entropy(run(torch.from_numpy(images)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(process_time() - began)
    return losses, seconds


def in_torch(make: Callable[[], torch.nn.Module], target: str) -> dict[str, Any]:
    """Both curves, of the same weights and batches; the optimizer runs in PyTorch in both."""
    torch.manual_seed(0)
    ours = make()
    theirs = copy.deepcopy(ours)
    torch._dynamo.reset()
    found = _curve(ours, torch.compile(ours, backend="neuron", options={"target": target} if target else None))
    return _compared(found, _curve(theirs, theirs))


Logits = Callable[[Any, Any], Any]


def _mlp() -> tuple[Logits, dict[str, Any]]:
    weights = _weights(one=(64, 128), two=(128, 10)) | {"shift": jnp.zeros(128, jnp.float32)}
    return lambda p, x: jax.nn.relu(x @ p["one"] + p["shift"]) @ p["two"], weights


def _transformer() -> tuple[Logits, dict[str, Any]]:
    """Two blocks over the rows of the images."""
    shapes = {"scale": (32,), "mixed": (32, 96), "out": (32, 32), "wide": (32, 128), "narrow": (128, 32)}
    layers = {f"layer{n}": _weights(**shapes) for n in range(2)}
    rest = _weights(into=(8, 32), head=(32, 10)) | {"place": jnp.zeros((8, 32), jnp.float32)}

    def logits(p: Any, x: Any) -> Any:
        x = x.reshape(-1, 8, 8) @ p["into"] + p["place"]
        for n in range(2):
            x = block(p[f"layer{n}"], x)
        return x.mean(1) @ p["head"]

    return logits, {**layers, **rest}


def _weights(**shapes: tuple[int, ...]) -> dict[str, Any]:
    generator, made = np.random.default_rng(0), {}
    for name, shape in shapes.items():
        numbers = generator.standard_normal(shape) / np.sqrt(shape[0]) if len(shape) > 1 else np.ones(shape)
        made[name] = jnp.asarray(numbers, jnp.float32)
    return made


def in_jax(make: Callable[[], tuple[Logits, dict[str, Any]]], target: str) -> dict[str, Any]:
    """Both curves, with AdamW inside of the compiled step."""
    logits, weights = make()

    def loss(p: Any, x: Any, y: Any) -> Any:
        return -(jax.nn.log_softmax(logits(p, x)) * jax.nn.one_hot(y, 10)).sum(-1).mean()

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

    curves = []
    for function in (compile(step, target=target), jax.jit(step)):
        zeros = jax.tree.map(jnp.zeros_like, weights)
        state: Any = (weights, zeros, zeros, jnp.float32(0))
        losses, seconds = [], []
        for x, y in _batches():
            began = process_time()
            state, value = function(state, x, y.astype(np.int32))
            losses.append(float(value))
            seconds.append(process_time() - began)
        curves.append((losses, seconds))
    return _compared(*curves)


def _compared(ours: tuple[list[float], list[float]], theirs: tuple[list[float], list[float]]) -> dict[str, Any]:
    (found, seconds), (wanted, eager) = ours, theirs
    return {
        "first": wanted[0],
        "last": wanted[-1],
        "error": float(np.abs(np.array(found) - np.array(wanted)).max()),
        "compile_s": seconds[0],
        "run_s": median(seconds[1:]),
        "framework_s": median(eager[1:]),
        "curve": found,
    }


RUNS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "torch mlp": lambda target: in_torch(Mlp, target),
    "torch 2-layer transformer": lambda target: in_torch(Classifier, target),
    "jax mlp": lambda target: in_jax(_mlp, target),
    "jax 2-layer transformer": lambda target: in_jax(_transformer, target),
}
