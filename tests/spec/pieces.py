"""Arguments of instructions without a kernel: views of buffers, and what their declarations say that they cost."""

from __future__ import annotations

from itertools import count
from typing import Any

import nki  # noqa: F401 - fills the registry
from nki.core.dtypes import as_dtype
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.spec.engine import engine as Engine
from nki.spec.instruction import REGISTRY
from nki.spec.step import Step
from nki.target import load_target
from nki.timing.cost import alone as elapsed

_IDS = count(1)


def place(region: str, dtype: Any, *shape: int) -> View:
    """A whole new tensor."""
    number = next(_IDS)
    return whole(Buffer(number, f"t{number}", MemoryRegion[region], shape, as_dtype(dtype)))


def sbuf(*shape: int, dtype: Any = "float32") -> View:
    """A tensor in SBUF."""
    return place("sbuf", dtype, *shape)


def psum(*shape: int, dtype: Any = "float32") -> View:
    """A tensor in PSUM."""
    return place("psum", dtype, *shape)


def hbm(*shape: int, dtype: Any = "float32") -> View:
    """A tensor in device memory."""
    return place("private_hbm", dtype, *shape)


def stepped(view: View, step: int) -> View:
    """Every `step`-th element of the last dimension."""
    return view._replace(
        shape=(*view.shape[:-1], view.shape[-1] // step), strides=(*view.strides[:-1], view.strides[-1] * step)
    )


def steps(name: str, target: str = "trn2", engine: Engine | None = None, **given: Any) -> tuple[Step, ...]:
    """The steps of an instruction with these arguments, the others at their defaults."""
    instruction = REGISTRY[name]
    parameters = instruction.__signature__.parameters
    defaults = {n: None if p.default is p.empty else p.default for n, p in parameters.items()}
    arguments = instruction.arguments(**(defaults | given))
    data = load_target(target)
    assert instruction.steps is not None
    return instruction.steps.formula(arguments, data, engine or instruction.engine_for(arguments, data))


def busy(name: str, target: str = "trn2", **given: Any) -> float:
    """ns that the unit of the last step is busy."""
    return steps(name, target, **given)[-1].ns


def alone(name: str, target: str = "trn2", **given: Any) -> float:
    """ns from the start until the result is visible."""
    return elapsed(steps(name, target, **given))


def streaming(name: str, target: str = "trn2", **given: Any) -> float:
    """ns of the last step that its elements take: without what an instruction takes itself, at the full rate."""
    step, data = steps(name, target, **given)[-1], load_target(target)
    if step.unit == "tensor":
        return step.ns * data.timing["tensor_rate"]
    if step.unit in ("vector", "scalar"):
        return step.ns - data.timing["issue_cycles"] / data.engines[step.unit].ghz
    return step.ns - step.skew
