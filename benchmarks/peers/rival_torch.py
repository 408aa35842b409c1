"""PyTorch on the CPU, eager; also the reference, in float32, that all results are compared with."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from benchmarks.peers.cases import EPSILON, SCALE, SHIFT, Case


def tensor(array: np.ndarray) -> torch.Tensor:
    """The same bytes as a tensor."""
    if array.dtype == np.float32:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]


KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "vadd": lambda x, y: x + y,
    "gelu": lambda x: functional.gelu(x * SCALE + SHIFT, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
    "rmsnorm": lambda x, weight: functional.rms_norm(x, (x.shape[-1],), weight[0], EPSILON),
    "matmul": lambda a, b: a.t() @ b,
    "attention": _attention,
}


def build(case: Case, arrays: list[np.ndarray], variant: str) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray]]:
    """A call, and how its result becomes a float32 array; variant "float32" computes everything in float32."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tensors = [tensor(array).float() if variant == "float32" else tensor(array) for array in arrays]
    kernel = KERNELS[case.kernel]
    return lambda: kernel(*tensors), lambda result: result.float().numpy()
