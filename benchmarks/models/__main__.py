"""A table of models: error against the framework, compile time, run time, instructions and the predicted time.

usage: python -m benchmarks.models [--target NAME] [--only TEXT] [--json FILE] [--no-training]

Both sides have one thread, and seconds are those of the processor, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from benchmarks.models import hub, jax_models, kernels, torch_models, training
from benchmarks.models.measure import measured

import nki.interop.torch  # noqa: F401  the backend "neuron"
from nki.interop.jax import compile
from nki.interop.torch.compile.compiled_graph import compiled_graphs

COLUMNS = (
    "error",
    "compile_s",
    "run_s",
    "framework_s",
    "ratio",
    "instructions",
    "interpreted",
    "device_ms",
    "hbm_bytes",
)


def of_torch(name: str, dtype: str, target: str) -> dict[str, Any]:
    """A model of PyTorch."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    function, inputs = torch_models.MODELS[name](dtype=getattr(torch, dtype))
    compiled = torch.compile(
        function, backend="neuron", fullgraph=True, dynamic=False, options={"target": target} if target else None
    )
    with torch.no_grad(), kernels.replaced() if name in torch_models.REPLACED else nullcontext():
        return measured(
            lambda: arrays(compiled(*inputs)),
            lambda: arrays(function(*inputs)),
            lambda: compiled_graphs()[-1].executable,
        )


def of_jax(name: str, dtype: str, target: str) -> dict[str, Any]:
    """A model of JAX; its own time is that of the jitted function."""
    function, inputs = jax_models.MODELS[name](dtype=getattr(jnp, dtype))
    compiled, theirs = compile(function, target=target), jax.jit(function)
    return measured(
        lambda: arrays(compiled(*inputs)), lambda: arrays(theirs(*inputs)), lambda: compiled.executable(*inputs)
    )


def arrays(tree: Any) -> list[np.ndarray]:
    """The leaves of a result as float32 arrays."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, torch.Tensor))
    return [leaf.float().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf, np.float32) for leaf in leaves]


def row(name: str, found: Mapping[str, Any]) -> str:
    """A line of the table."""
    if "refused" in found:
        return f"{name:52} {found['refused'][:160]}"
    cells = [found[column][-1] if isinstance(found[column], list) else found[column] for column in COLUMNS]
    return f"{name:52} " + " ".join(map(_cell, cells))


def _cell(value: Any) -> str:
    if value is None:
        return f"{'all':>12}"
    return f"{value:>12,d}" if isinstance(value, int) else f"{value:>12.4g}"


def main() -> None:
    """Run what was chosen, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--no-training", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["NKI_THREADS"] = "1"
    found: dict[str, Any] = {}
    print(f"{'model':52} " + " ".join(f"{column:>12}" for column in COLUMNS))
    for framework, models, run in (("torch", torch_models.MODELS, of_torch), ("jax", jax_models.MODELS, of_jax)):
        for model in models:
            for dtype in ("float32", "bfloat16"):
                name = f"{framework} {model} {dtype}"
                if chosen.only in name:
                    found[name] = run(model, dtype, chosen.target)
                    print(row(name, found[name]), flush=True)
                    _write(chosen.json, found)
    if not hub.available():
        print("transformers is not installed: gpt2, llama and vit are left out")
    if not chosen.no_training:
        found |= trained(chosen.only, chosen.target)
    _write(chosen.json, found)


def _write(file: str, found: Mapping[str, Any]) -> None:
    if file:
        Path(file).write_text(json.dumps(found, indent=1))


def trained(only: str, target: str) -> dict[str, Any]:
    """Loss curves; see `benchmarks.models.training`."""
    if not training.available():
        print("scikit-learn is not installed: nothing is trained")
        return {}
    found = {}
    for name, run in training.RUNS.items():
        if only in f"training {name}":
            curve = found[f"training {name}"] = run(target)
            print(
                f"training {name}: loss {curve['first']:.4f} -> {curve['last']:.4f} in {training.STEPS} steps, "
                f"largest difference {curve['error']:.2e}, {curve['run_s']:.4f} s a step ({curve['framework_s']:.4f})",
                flush=True,
            )
    return found


if __name__ == "__main__":
    main()
