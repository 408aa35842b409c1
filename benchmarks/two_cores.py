"""What a second core is worth: predicted time, meetings, kernels cut in two, and time to compile.

usage: python -m benchmarks.two_cores [--only TEXT] [--dtype NAME] [--target NAME]

Every model of `benchmarks.models.larger` is lowered by JAX, compiled for one core and for two, with kernels that are in
memory already, and run on both, which has to give the same bits.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.models.larger import MODELS

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.jax import lower


def measured(name: str, dtype: str, target: str) -> str:
    """A line of the table."""
    function, weights, inputs = MODELS[name](getattr(jnp, dtype))
    arguments = (weights, *inputs)
    made: list[Executable] = []
    seconds = []
    for lnc in (1, 1, 2):  # the first time compiles the kernels
        lowered = lower(function, arguments, {}, donate=(), static=(None, None))
        began = perf_counter()
        made.append(compile_module(lowered.module, name=name, target=target, lnc=lnc))
        seconds.append(perf_counter() - began)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    taken = [leaves[number] for number in lowered.kept]
    one, two = ([array.tobytes() for array in executable.run(taken)] for executable in made[1:])
    before, after = (executable.profile().makespan_ns / 1e3 for executable in made[1:])
    report, same = made[2].report, "equal" if one == two else "DIFFERENT"
    return (
        f"{name:16} {dtype:9} {before:9.1f} -> {after:9.1f} us  x{before / after:4.2f}  {report.split:3} of "
        f"{sum(report.kernels.values()):3} kernels, {report.meetings:3} meetings  "
        f"{seconds[1]:6.2f} -> {seconds[2]:6.2f} s"
        f"  bits {same}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: both")
    parser.add_argument("--target", default="trn2")
    asked = parser.parse_args()
    for name in MODELS:
        for dtype in (asked.dtype,) if asked.dtype else ("float32", "bfloat16"):
            if asked.only in name:
                print(measured(name, dtype, asked.target), flush=True)


if __name__ == "__main__":
    main()
