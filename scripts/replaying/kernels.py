"""Kernels: those of the benchmarks at the benchmarks' sizes, the small programs of the proofs, and the examples."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from benchmarks.kernels.cases import LOOPS, MIXED, STRAIGHT
from benchmarks.kernels.cases import Case as Benchmark
from benchmarks.kernels.hostile import PROGRAMS, Named
from examples.flash_attention import flash_attention
from examples.tensor_add import tensor_add
from scripts.replaying.case import Case, Found, Numbers
from scripts.replaying.digest import of_arrays, of_programs
from tests.support import environment

import nki
import nki.language as nl

_NATIVE, _NUMPY = "always", "0"
"""Values of NKI_NATIVE: who executes."""


def cases() -> Iterator[Case]:
    """All kernels; the small ones are executed by native code and by NumPy, the others by native code."""
    for benchmark in (*STRAIGHT, *MIXED, *LOOPS):
        yield Case(f"benchmark {benchmark.label}", partial(_benchmark, benchmark))
    for program in PROGRAMS:
        yield Case(f"program {program.name}", partial(_program, program))
    yield from _examples()


def _examples() -> Iterator[Case]:
    for target in ("trn1", "trn2", "trn3"):
        yield Case(f"example tensor_add {target}", partial(_addition, target))
        yield Case(f"example flash_attention {target}", partial(_attention, target, None))
    yield Case("example flash_attention trn2, two cores", partial(_attention, "trn2", 2))


def _benchmark(benchmark: Benchmark) -> Found:
    numbers, rows = Numbers(benchmark.label), benchmark.arrays[0][0][0]
    arrays = [
        numbers.below(rows, shape) if np.dtype(dtype).kind == "i" else numbers.floats(shape).astype(dtype)
        for shape, dtype in benchmark.arrays
    ]
    kernel = nki.jit(benchmark.kernel)
    launched = kernel if benchmark.cores is None else kernel[benchmark.cores]
    return of_call(launched, [*arrays, *benchmark.more], benchmark.target)


def _program(program: Named) -> Found:
    numbers = Numbers(program.name)
    arrays = [numbers.floats(shape).astype(program.dtype) for shape in program.shapes]
    return of_call(program.made(), [*arrays, *program.more], "trn2", (_NATIVE, _NUMPY))


def _addition(target: str) -> Found:
    numbers = Numbers("tensor_add")
    return of_call(tensor_add, [numbers.floats((200, 96)) for _ in range(2)], target, (_NATIVE, _NUMPY))


def _attention(target: str, cores: int | None) -> Found:
    numbers = Numbers("flash_attention")
    shapes = (128, 512), (128, 512), (512, 128)
    arrays = [numbers.floats(shape).astype(nl.bfloat16) for shape in shapes]
    kernel = flash_attention if cores is None else flash_attention[cores]
    return of_call(kernel, arrays, target, (_NATIVE, _NUMPY))


def of_call(kernel: Any, arguments: Sequence[Any], target: str, natives: Sequence[str] = (_NATIVE,)) -> Found:
    """All aspects of a call; whoever executes has to give the same bytes. Arguments that it changes are results."""
    digests, found = {}, {}
    for native in natives:
        given = copy.deepcopy(list(arguments))
        with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target, NKI_NATIVE=native), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = kernel(*given)
        digests[native] = of_arrays([*leaves(result), *(each for each in given if isinstance(each, np.ndarray))])
        found = dict(of_programs(kernel.report.programs))
    if len(set(digests.values())) > 1:
        raise AssertionError(f"native code and NumPy differ: {digests}")
    return {**found, "results": digests[natives[0]]}


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree of results, in order."""
    if isinstance(tree, Mapping):
        return leaves(tuple(tree.values()))
    if isinstance(tree, tuple | list):
        return [leaf for item in tree for leaf in leaves(item)]
    return [] if tree is None else [tree]
