"""Derivatives of random graphs: compared with those of the framework in float64.

There are no bounds for them. What is allowed is a multiple of what the framework itself is away from float64 in
float32, of how far float64 moves when the inputs move by a unit in the last place, and of that unit of the largest
derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import enable_x64

from tests.graph.differential.bound import ULP
from tests.graph.differential.records import Array, Graph
from tests.graph.differential.run import arrays, function, plain, tensor

SMOOTH = frozenset(
    ("add", "subtract", "multiply", "divide", "exp", "tanh", "sigmoid", "gelu", "gelu_tanh", "silu", "softplus", "sin",
     "cos", "relu", "sum", "mean", "amax", "softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "matmul",
     "matmul_left", "scores", "linear", "einsum", "conv2d", "baddbmm", "attention", "permute", "reshape", "slice",
     "concatenate", "pad", "expand", "flip", "roll", "unsqueeze", "stack", "half", "triangle", "index_select",
     "embedding", "gather", "index_put", "index_add", "addcmul", "where", "masked_fill", "avg_pool", "max_pool",
     "cumsum", "logsumexp", "plus_number", "times_number", "number_minus", "square", "variance", "nearest",
     "dynamic_slice", "dynamic_update_slice", "loop", "sort", "topk")
)  # fmt: skip
"""Operators that have derivatives nearly everywhere."""

_TIMES = 16.0


def derivatives(graph: Graph) -> Callable[..., Any]:
    """A function for the derivatives of a weighted sum of all results, with respect to all inputs of floats."""
    whole = function(graph)
    places = [k for k, x in enumerate(graph.inputs) if x.dtype == "float32"]

    def of_torch(*inputs: torch.Tensor) -> Any:
        leaves = [x.detach().requires_grad_(k in places) for k, x in enumerate(inputs)]
        with torch.enable_grad():
            made = sum((x * _weights(torch, x)).sum() for x in whole(*leaves))
            return torch.autograd.grad(made, [leaves[k] for k in places], materialize_grads=True)

    def of_jax(*inputs: Any) -> Any:
        def summed(*chosen: Any) -> Any:
            known = dict(zip(places, chosen, strict=True))
            return sum((x * _weights(jnp, x)).sum() for x in whole(*(known.get(k, v) for k, v in enumerate(inputs))))

        return jax.grad(summed, tuple(range(len(places))))(*(inputs[k] for k in places))

    return of_jax if graph.language == "jax" else of_torch


def _weights(of: Any, x: Any) -> Any:
    """Numbers that differ, so that no place is as good as another."""
    return of.cos(of.arange(int(np.prod(x.shape)), dtype=x.dtype) * 0.7).reshape(x.shape)


def wrong_derivatives(graph: Graph, found: Sequence[Array]) -> str:
    """What is wrong with them, or ""."""
    given = arrays(graph)
    exact = _computed(graph, [_wide(x) for x in given])
    plainly = _computed(graph, given)
    random = np.random.default_rng(graph.seed)
    moved = [_computed(graph, [_moved(random, x) for x in given]) for _ in range(3)]
    for number, (mine, truth, own, *near) in enumerate(zip(found, exact, plainly, *moved, strict=True)):
        if mine.shape != truth.shape:
            return f"derivative {number}: {list(mine.shape)} instead of {list(truth.shape)}"
        if not np.isfinite(truth).all() or not np.isfinite(own).all() or not truth.size:
            continue
        spread = max(float(np.abs(x - truth).max()) for x in (own, *near))
        allowed = _TIMES * (spread + ULP * float(np.abs(truth).max()))
        away = np.abs(mine.astype(np.float64) - truth)
        if not (away <= allowed).all():
            at = tuple(int(k) for k in np.argwhere(~(away <= allowed))[0])
            return (
                f"derivative {number} at {list(at)}: {mine[at]:.9g} instead of {truth[at]:.9g}, allowed {allowed:.3g}"
            )
    return ""


def _moved(random: np.random.Generator, x: Array) -> Array:
    return _wide(x) * (1 + ULP * random.choice([-1.0, 1.0], x.shape)) if _float(x) else x


def _float(x: Array) -> bool:
    return x.dtype == np.float32


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if _float(x) else x


def _computed(graph: Graph, given: Sequence[Array]) -> list[Array]:
    if graph.language == "jax":
        with enable_x64(any(x.dtype == np.float64 for x in given)):
            return [plain(x) for x in derivatives(graph)(*map(jnp.asarray, given))]
    return [plain(x) for x in derivatives(graph)(*map(tensor, given))]
