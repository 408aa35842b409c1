"""Print the tables of docs/profile.md, *Following the advice*: ``python -m tests.profiling.ladders``."""

from __future__ import annotations

import os

import nki
from tests.profiling.ladders import Ladder
from tests.profiling.ladders.attention import ATTENTION
from tests.profiling.ladders.layer_norm import LAYER_NORM
from tests.profiling.ladders.matmul_gelu import MATMUL_GELU

LADDERS = {
    "Matmul and gelu, 2,048 in each direction, bfloat16": MATMUL_GELU,
    "Softmax attention, 512 tokens and one head of 64, float32": ATTENTION,
    "Layer norm, 256 rows of 1,024, float32": LAYER_NORM,
}


def table(title: str, ladder: Ladder) -> str:
    """A table of Markdown: what each advice promised at most, was expected to save, and saved."""
    lines = [f"| {title} | at most | about | saved | then |", "|---|--:|--:|--:|--:|"]
    arguments = ladder.arguments(ladder.size)
    before = None
    for rung in ladder.rungs:
        found = nki.profile(nki.jit(rung.kernel))(*arguments)
        figures = ["", "", ""]
        if before is not None:
            said = next(each for each in before.advice if each["rule"] == rung.advice)
            saved = before.makespan_ns - found.makespan_ns
            figures = [_us(ns) for ns in (said["saving_ns"], said["expected_ns"], saved)]
        name = f"`{rung.advice}`" if rung.advice else "naive"
        lines.append(f"| {name} | {' | '.join(figures)} | {_us(found.makespan_ns)} |")
        before = found
    return "\n".join(lines)


def _us(ns: float) -> str:
    return f"{ns / 1000.0:,.1f} µs"


if __name__ == "__main__":
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn2"
    print("\n\n".join(table(title, ladder) for title, ladder in LADDERS.items()))
