"""Models of JAX through `nki.interop.jax.compile`."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.models.jax_models import MODELS
from scripts.replaying import jax_operators
from scripts.replaying.case import PATTERNS, Found, Numbers
from scripts.replaying.models import of_executables

from nki.interop.jax import compile


def run(name: str) -> Found:
    """Compile and run it."""
    jax.clear_caches()  # functions that JAX keeps have the lines of their first caller
    function, inputs = _of_benchmarks(name) if name in MODELS else jax_operators.made(name)
    compiled = compile(function, target="trn2", patterns=PATTERNS)
    results = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]
    return of_executables([compiled.executable(*inputs)], results)


def _of_benchmarks(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model of the benchmarks, with weights of our own."""
    function, inputs = MODELS[name](dtype=jnp.float32)
    numbers = Numbers(name)

    def drawn(leaf: Any) -> Any:
        return jnp.asarray(numbers.floats(leaf.shape, 1.0 / math.sqrt(leaf.shape[0])))

    return function, jax.tree.map(drawn, inputs)
