"""Custom calls of kernels that were compiled in the test, as an importer makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki.driver.compile import compiled as compiled_call
from nki.driver.compiled import Compiled
from nki.driver.prepare import prepare
from nki.graph.ir import Group, Op, Value
from nki.graph.references import TARGET, Reference, register
from nki.interop.common.backend_config import BackendConfig
from tests.graph.hand_made import line, whole


def compiled(kernel: Any, arrays: Sequence[np.ndarray], target: str = "trn2") -> Compiled:
    prepared = prepare(kernel.launch(), tuple(arrays), {}, mode="compiled", target=target)
    return compiled_call(prepared)


def called(
    kernel: Any, arrays: Sequence[np.ndarray], operands: Sequence[Value], *results: Value, at: int = 1
) -> tuple[Group, Reference]:
    """A group that calls a kernel, and what keeps that known."""
    made = compiled(kernel, arrays)
    name = kernel.launch().name
    kept = register(made.kernel_hash, name, made.programs)
    inputs = tuple(buffer.name for buffer in made.programs[0].inputs)
    outputs = tuple(f"out{number}" for number in range(len(results)))
    config = BackendConfig(made.kernel_hash, inputs, outputs, name, (), False).encoded()
    attributes = {"call_target_name": TARGET, "backend_config": config}
    return whole(Op("custom_call", tuple(operands), tuple(results), attributes, location=line(at))), kept
