"""Models in which the patterns of the library are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.exported_program import module_of
from nki.graph.patterns import register, unregister
from nkilib.patterns.every import PATTERNS
from tests.graph import xla

Compile = Callable[..., Executable]
LIMIT = {"float32": 2e-5, "bfloat16": 2.0**-6}
"""Largest difference, as a part of the largest number; of bfloat16, where a model rounds between operations."""


@pytest.fixture
def always() -> Iterator[None]:
    """The patterns of the library, wherever they find something."""
    for pattern in PATTERNS:
        register(replace(pattern, choose="always"))
    yield
    for pattern in PATTERNS:
        unregister(pattern.name)


@pytest.fixture
def faster() -> Iterator[None]:
    """The patterns of the library, where they are faster."""
    for pattern in PATTERNS:
        register(pattern)
    yield
    for pattern in PATTERNS:
        unregister(pattern.name)


def normal(*shape: int, dtype: str = "float32", scale: float = 1.0, seed: int = 0) -> Any:
    """Random numbers."""
    found = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return found.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)


def of_jax(function: Any, *inputs: Any, patterns: list[str] | None = None) -> Executable:
    """A function of JAX, compiled with these patterns or all, and compared with XLA in float32."""
    made = compile_module(xla.lowered(function, *inputs), target="trn2", patterns=patterns)
    wide = [each.astype(np.float32) if each.dtype == ml_dtypes.bfloat16 else each for each in inputs]
    compare(made.run(list(inputs)), xla.run(xla.lowered(function, *wide), wide), inputs[0].dtype.name)
    return made


def of_torch(model: torch.nn.Module, *inputs: torch.Tensor, patterns: list[str] | None = None) -> Executable:
    """A module of PyTorch, whose weights become constants, with these patterns or all, compared with its eager mode."""
    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(model, inputs).run_decompositions(decompositions())
        wanted = model(*inputs)
    made = compile_module(module_of(program), target="trn2", patterns=patterns)
    arrays = [array(each) for each in inputs]
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    compare(made.run(arrays), [array(each) for each in several], str(inputs[0].dtype).removeprefix("torch."))
    return made


def array(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    narrow = tensor.int() if tensor.dtype is torch.int64 else tensor  # as models take indices
    return narrow.detach().numpy()


def compare(found: Sequence[Any], wanted: Sequence[Any], dtype: str) -> None:
    """All results are as near as their dtype allows."""
    for one, other in zip(found, wanted, strict=True):
        one, other = one.astype(np.float64), other.astype(np.float64)
        assert np.abs(one - other).max() <= LIMIT.get(dtype, LIMIT["float32"]) * np.abs(other).max()


def replaced(made: Executable) -> list[str]:
    """Names of the patterns whose kernels are used."""
    return [each.pattern for each in made.report.replaced]
