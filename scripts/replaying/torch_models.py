"""Models of PyTorch through ``torch.compile(model, backend="neuron")``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.models import kernels
from benchmarks.models.layers import Block, Classifier, Decoder, LeNet, Mamba, Mlp, causal_mask
from scripts.replaying.case import PATTERNS, Found, Numbers
from scripts.replaying.models import of_executables

import nki.interop.torch  # noqa: F401  the backend "neuron"
from nki.interop.torch.compile.compiled_graph import compiled_graphs

_CACHED = 32
"""Places in the decoder's cache."""
Made = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


def run(name: str) -> Found:
    """Compile and run it; of the last one the gradients of its weights are results as well."""
    torch.set_num_threads(1)
    torch._dynamo.reset()
    numbers = Numbers(name)
    model, inputs = _MODELS[name](numbers)
    before = len(compiled_graphs())
    options = {"target": "trn2", "patterns": PATTERNS}
    compiled = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False, options=options)
    with torch.set_grad_enabled(name.endswith("gradient")):
        found = compiled(*inputs)
    results = list(found) if isinstance(found, tuple) else [found]
    if name.endswith("gradient"):
        results[0].square().sum().backward()
        results += [parameter.grad for parameter in model.parameters()]
    graphs = compiled_graphs()[before:]
    return of_executables([graph.executable for graph in graphs], [_array(each) for each in results])


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().float().numpy()


def _filled(model: torch.nn.Module, numbers: Numbers, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The model with numbers for weights and buffers, in the order of their names."""
    for _, tensor in sorted(itertools.chain(model.named_parameters(), model.named_buffers())):
        scale = 1.0 / math.sqrt(tensor.shape[-1]) if tensor.ndim > 1 else 0.5
        tensor.data.copy_(torch.from_numpy(numbers.floats(tuple(tensor.shape), scale)))
    return model.to(dtype).eval()


def _plain(make: type[torch.nn.Module], *shape: int, dtype: torch.dtype = torch.float32) -> Callable[[Numbers], Made]:
    def made(numbers: Numbers) -> Made:
        return _filled(make(), numbers, dtype), (torch.from_numpy(numbers.floats(shape)).to(dtype),)

    return made


def _llama(numbers: Numbers) -> Made:
    """With kernels of the user's as operators in place of RMS norm and attention."""
    length = 16
    model = _filled(Decoder(layers=2, parts=(kernels.normed, kernels.attended)), numbers)
    words = torch.from_numpy(numbers.below(96, (1, length))).long()
    caches = torch.from_numpy(numbers.floats((2, 2, 1, 2, _CACHED, 16)))
    return model, (words, torch.arange(length), causal_mask(length, _CACHED, 0), caches)


_MODELS: dict[str, Callable[[Numbers], Made]] = {
    "mlp": _plain(Mlp, 32, 64),
    "lenet": _plain(LeNet, 2, 1, 28, 28),
    "block bf16": _plain(Block, 2, 32, 64, dtype=torch.bfloat16),
    "llama prefill": _llama,
    "mamba": _plain(Mamba, 1, 16, 32),
    "classifier, gradient": _plain(Classifier, 8, 64),
}
