"""Kernels for tests of single passes, what a pass makes of them, and what both versions compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki.compiler import CompileConfig
from nki.options import Options
from nki.passes.context import Context, Pass
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.target.load import load_target
from nki.testing.adversary import Policy, run_adversely
from tests.ir.kernels import traced

TRN2 = load_target("trn2")


def passed(
    kernel: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    *passes: Pass,
    config: CompileConfig | None = None,
    ring: int = 4,
    lnc: int | None = None,
) -> tuple[Program, Program]:
    """The program of core 0 as traced, and after some passes."""
    context = Context(TRN2, Options(prefetch_ring=ring), config or CompileConfig())
    program = before = traced(kernel, *arrays, lnc=lnc)[0]
    for one in passes:
        program = one.run(program, context)
    return before, program


def results(program: Program, arrays: Sequence[np.ndarray]) -> list[bytes]:
    """What a program on one core returns."""
    copies = [np.array(array) for array in arrays]
    return [result.tobytes() for result in run_adversely([program], copies, TRN2, Policy(), Options())]


def shape(block: Block) -> list[Any]:
    """Names of the instructions; a loop is ``[bounds, *shape of its body]``."""
    found: list[Any] = []
    for item in block.items:
        match item:
            case Issued():
                found.append(item.instruction.name)
            case ForLoop():
                found.append([(item.lower, item.upper, item.step), *shape(item.body)])
            case WhileLoop():
                found.append(["while", *shape(item.body)])
    return found
