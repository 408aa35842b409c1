"""Random programs of index expressions and masks: run as kernels of the first NKI in both modes, and in NumPy."""

from __future__ import annotations

import warnings

import numpy as np

from tests.beta1.fuzz.expected import expected
from tests.beta1.fuzz.issued import kernel
from tests.beta1.fuzz.programs import ROW_LIMIT, ROWS, SOURCES, program


def sources(seed: int) -> list[np.ndarray]:
    """The tensors that programs load from."""
    drawn = np.random.default_rng(seed)
    found = [drawn.integers(-3, 4, shape).astype(np.float32) for shape in SOURCES]
    return [*found, drawn.integers(0, ROW_LIMIT, ROWS).astype(np.int32)]


def differences(seed: int) -> list[str]:
    """What is wrong with a program: in either mode, at which step."""
    steps, arrays = program(seed), sources(seed)
    wanted = expected(steps, arrays)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[memory.uninitialized\]")  # what a mask left out is copied on
        compiled = kernel(*arrays, seed)
        simulated = kernel.simulated()(*arrays, seed)
    found = []
    for at, (step, (value, known), one, two) in enumerate(zip(steps, wanted, compiled, simulated, strict=True)):
        for mode, got in (("compiled", one), ("simulated", two)):
            if not np.array_equal(np.asarray(got)[known], value[known]):
                wrong = int((np.asarray(got)[known] != value[known]).sum())
                found.append(f"{seed}: step {at} {mode}: {wrong} of {int(known.sum())} wrong in {step}")
    return found
