"""How long allocation takes per instruction, and how much room it takes over what is live at once.

Prints CPU time of live ranges and of the whole pass, and peak / live bytes in both modes, for kernels of up to about
100 000 instructions and for random intervals. Usage: ``python benchmarks/allocation.py [--tiles N]``.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ir_speed import kernel as tiles_kernel
from examples.flash_attention import flash_attention

from nki.compiler import AddressRotation, CompileConfig
from nki.core.collector import paused_collector
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes.allocation.addresses import PASS
from nki.passes.allocation.packing import pack_rotating, pack_tight
from nki.passes.analysis.live_intervals import Item, Room
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.memory_usage import usage
from nki.passes.analysis.pressure import load
from nki.passes.context import Context
from nki.spec.program import Program
from nki.target.load import load_target

TARGET = load_target("trn2")


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Result and CPU seconds."""
    with paused_collector():
        start = time.process_time()
        result = function()
        return result, time.process_time() - start


def program_rows(name: str, program: Program) -> None:
    """Times and peaks of a traced kernel."""
    count = sum(1 for _ in program.body.walk())
    _, seconds = timed(lambda: liveness(program))
    print(f"{name}: {count} instructions, live ranges {seconds / count * 1e6:.1f} us per instruction")
    for mode in (AddressRotation.AUTO, AddressRotation.DISABLE):
        context = Context(TARGET, config=CompileConfig(address_rotation=mode))
        placed, seconds = timed(lambda context=context: PASS.run(program, context))  # type: ignore[misc]
        peaks = ", ".join(f"{each.name} {each.peak} (live {each.bound})" for each in usage(placed, TARGET))
        print(f"  {mode.name:<8} {seconds / count * 1e6:5.1f} us per instruction; {peaks}")


def random_items(rng: random.Random, count: int) -> list[Item]:
    """Mostly short intervals, as tiles have, and a few long ones."""
    items = []
    for _ in range(count):
        first = rng.randrange(2 * count)
        length = rng.randrange(1, 30) if rng.random() < 0.97 else rng.randrange(1, 2000)
        items.append(Item(first, min(2 * count, first + length), rng.randrange(1, 64) * 32, 128, 4))
    return items


def random_rows(count: int, seeds: int) -> None:
    """Times and peaks of random intervals."""
    ratios, tight, rotating = [], 0.0, 0.0
    for seed in range(seeds):
        items = random_items(random.Random(seed), count)
        least = int(load(items, [], 2 * count + 1).max())
        packing, seconds = timed(lambda items=items, least=least: pack_tight(items, [], Room(1 << 40), least))  # type: ignore[misc]
        tight += seconds
        ratios.append(packing.peak / least)
        _, seconds = timed(lambda items=items, least=least: pack_rotating(items, [], Room(2 * least)))  # type: ignore[misc]
        rotating += seconds
    mean = math.exp(sum(map(math.log, ratios)) / seeds)
    each = 1e6 / count / seeds
    print(
        f"random, {count} buffers: peak / live {mean:.3f} (worst {max(ratios):.3f}), "
        f"tight {tight * each:.1f}, rotating {rotating * each:.1f} us per buffer"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=20_000, help="of the largest unrolled kernel")
    options = parser.parse_args()
    for tiles in (options.tiles // 100, options.tiles // 10, options.tiles):
        wide = np.zeros((128, tiles * 512), np.float32)
        program_rows("unrolled tiles", traced(tiles_kernel, wide, tiles))
    for sequence in (1024, 4096):
        shapes = [(128, sequence), (128, sequence), (sequence, 128)]
        program_rows(
            "flash attention", traced(flash_attention.func, *(np.zeros(s, ml_dtypes.bfloat16) for s in shapes))
        )
    for count, seeds in ((30, 20), (300, 5), (3000, 2), (30_000, 1), (100_000, 1)):
        random_rows(count, seeds)


def traced(kernel: Callable[..., Any], *arguments: Any) -> Program:
    """The program of a kernel on one core."""
    return trace_only(Launch(kernel), arguments, {}, TARGET, Options())[0].program


if __name__ == "__main__":
    main()
