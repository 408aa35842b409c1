"""What is computed of constants equals what XLA computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import run_passes
from nki.graph.stablehlo.read import read
from nki.target.load import load_target
from tests.graph import xla

_TABLE = np.arange(5 * 6 * 4, dtype=np.int32).reshape(5, 6, 4)
_PLACES = np.array([[3, 0, 9], [1, -1, 4]], np.int32)

GATHERS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, i: x[i],
    "clamped": lambda x, i: jnp.take(x, i, axis=1, mode="clip"),
    "two indices": lambda x, i: x[i % 5, jnp.abs(i) % 6],
    "slices": lambda x, i: jax.vmap(lambda start: jax.lax.dynamic_slice(x, (start, 1, 0), (2, 3, 4)))(i[0]),
    "along": lambda x, i: jnp.take_along_axis(x[:2, :, 0], jnp.abs(i) % 6, axis=1, mode="clip"),
    "batches": lambda x, i: jax.vmap(lambda rows, at: rows[at % 6])(x[:2], i),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers_of_constants_are_folded(name: str) -> None:
    text = xla.lowered(lambda: GATHERS[name](jnp.asarray(_TABLE), jnp.asarray(_PLACES)))
    module = run_passes(read(text), GraphContext(load_target("trn2")), start="imported")
    (op,) = [op for op in module.walk() if op.results == module.main.results]
    assert op.name == "constant", [op.name for op in module.walk()]
    np.testing.assert_array_equal(op.attributes["value"], xla.run(text, [])[0])
