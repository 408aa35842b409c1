"""What the graph compiler makes of larger models: instructions, traffic, predicted time, engines, time on the CPU.

usage: python -m benchmarks.graph_effects [--only TEXT] [--dtype NAME] [--target NAME] [--constants] [--json FILE]

Every model is lowered by JAX, compiled without kernels from disk (unless NKI_CACHE is set), run, and compared with the
jitted function.
`--constants` makes the weights constants of the model.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.models.larger import MODELS
from benchmarks.models.measure import difference

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.jax import lower

ENGINES = ("tensor", "vector", "scalar", "gpsimd")
REPEATS = 5


def measured(name: str, dtype: str, target: str, constants: bool) -> tuple[dict[str, Any], Executable]:
    """The figures of a model, and what was compiled."""
    function, weights, inputs = MODELS[name](getattr(jnp, dtype))
    if constants and name != "train step":
        held = function
        function, arguments = (lambda *given: held(weights, *given)), inputs
    else:
        arguments = (weights, *inputs)
    lowered = lower(function, arguments, {}, donate=(), static=(None, None))
    began = process_time()
    made = compile_module(lowered.module, name=name, **({"target": target} if target else {}))
    compiled = process_time() - began
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    taken = [leaves[number] for number in lowered.kept]
    theirs = jax.jit(function)
    found, wanted = made.run(taken), jax.tree.leaves(theirs(*arguments))
    return {
        "error": difference([np.asarray(a, np.float32) for a in found], [np.asarray(a, np.float32) for a in wanted]),
        **of_report(made),
        **of_profile(made, dtype),
        "compile_s": compiled,
        "run_ms": best(lambda: made.run(taken)) * 1e3,
        "jax_ms": best(lambda: jax.block_until_ready(theirs(*arguments))) * 1e3,
    }, made


def best(function: Callable[[], Any]) -> float:
    """The least CPU time of some warm runs in seconds, all threads together."""
    times = []
    for _ in range(REPEATS):
        began = process_time()
        function()
        times.append(process_time() - began)
    return min(times)


def of_report(made: Executable) -> dict[str, Any]:
    """Counts before and after fusion and planning."""
    r = made.report
    return {
        "kernels": [r.kernels_before, r.kernels_after],
        "distinct": r.distinct,
        "instructions": r.instructions,
        "group_bytes": [r.bytes_before, r.bytes_after],
        "temporary_bytes": [r.temporary_bytes_before, r.temporary_bytes],
        "seconds": dict(r.seconds),
    }


def of_profile(made: Executable, dtype: str) -> dict[str, Any]:
    """The predicted time, and the part of it that each engine and the memory are busy."""
    profile = made.profile()
    span, totals = profile.makespan_ns, profile.about.totals[0]
    busy: dict[str, float] = defaultdict(float)
    for line in profile["time"].rows():
        if line["core"] == 0 and line["category"] == "busy":
            busy[line["track"]] += line["ns"]
    moved = totals["hbm_read_bytes"] + totals["hbm_write_bytes"]
    return {
        "device_us": span / 1e3,
        "hbm_bytes": moved,
        "hbm_part": moved / span / profile.about.hardware["hbm_bytes_per_ns"],
        "dma_part": totals["dma_bytes"] / span / profile.about.hardware["dma_bytes_per_ns"],
        "flops_part": totals["matmul_flops"] / span / 1e3 / profile.about.hardware["peak_tflops"][dtype],
        "busy": {track: ns / span for track, ns in busy.items()},
    }


def lines_of(name: str, found: Mapping[str, Any]) -> str:
    """Two lines of the table."""
    busy = " ".join(f"{engine} {found['busy'].get(engine, 0):.0%}" for engine in ENGINES)
    return (
        f"{name:24} {found['kernels'][0]:>5,} -> {found['kernels'][1]:<4,} {found['distinct']:>8,} "
        f"{found['instructions']:>12,} {found['group_bytes'][0] / 1e6:>9.2f} -> {found['group_bytes'][1] / 1e6:<7.2f} "
        f"{found['temporary_bytes'][0] / 1e6:>7.2f} -> {found['temporary_bytes'][1] / 1e6:<6.2f} "
        f"{found['device_us']:>9.1f} {found['compile_s']:>9.2f} {found['run_ms']:>8.2f} {found['jax_ms']:>7.2f} "
        f"{found['error']:.1e}\n{'':24} busy: {busy} dma {found['busy'].get('dma', 0):.0%}; HBM "
        f"{found['hbm_part']:.1%} ({found['hbm_bytes'] / 1e6:.2f} MB); TensorE peak {found['flops_part']:.1%}"
    )


def main() -> None:
    """Measure what was chosen, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--target", default="")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--json", default="")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    print(
        f"{'model':24} {'kernels':>13} {'distinct':>8} {'instructions':>12} {'MB between kernels':>20} "
        f"{'temporary MB':>17} {'device us':>9} {'compile s':>9} {'run ms':>8} {'JAX ms':>7} error"
    )
    for model in MODELS:
        if chosen.only in model:
            name = f"{model} {chosen.dtype}"
            found[name], _ = measured(model, chosen.dtype, chosen.target, chosen.constants)
            print(lines_of(name, found[name]), flush=True)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    os.environ.setdefault("NKI_CACHE", "0")
    main()
