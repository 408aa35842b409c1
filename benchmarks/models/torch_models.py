"""The models of PyTorch by name: each makes a callable and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from benchmarks.models import hub, kernels
from benchmarks.models.layers import Block, Decoder, LeNet, Mamba, Mlp, ResNet18, attended, causal_mask, normed

Made = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

CACHED = 32
"""Places in the decoder's cache."""


def _plain(module: type[torch.nn.Module], *shape: int, dtype: torch.dtype) -> Made:
    return module().to(dtype).eval(), (torch.randn(shape).to(dtype),)


def _decoder(length: int, start: int, dtype: torch.dtype, linked: bool = False) -> Made:
    """With kernels as operators in place of RMS norm and attention, or without."""
    model = Decoder(parts=(kernels.normed, kernels.attended) if linked else (normed, attended)).to(dtype).eval()
    caches = torch.randn(4, 2, 1, 2, CACHED, 16).to(dtype)
    words, positions = torch.randint(0, 96, (1, length)), torch.arange(start, start + length)
    return model, (words, positions, causal_mask(length, CACHED, start), caches)


def _hub(name: str, dtype: torch.dtype) -> Made:
    return hub.MODELS[name](dtype)


MODELS: Mapping[str, Callable[..., Made]] = {
    "mlp": partial(_plain, Mlp, 32, 64),
    "lenet": partial(_plain, LeNet, 4, 1, 28, 28),
    "resnet18": partial(_plain, ResNet18, 1, 3, 64, 64),
    "block": partial(_plain, Block, 2, 32, 64),
    "llama prefill": partial(_decoder, 16, 0),
    "llama decode": partial(_decoder, 1, 16),
    "llama prefill, kernels as operators": partial(_decoder, 16, 0, linked=True),
    "llama decode, kernels as operators": partial(_decoder, 1, 16, linked=True),
    "llama prefill, kernels by pattern": partial(_decoder, 16, 0),
    "mamba": partial(_plain, Mamba, 1, 16, 32),
    **({name: partial(_hub, name) for name in hub.MODELS} if hub.available() else {}),
}

REPLACED = frozenset(("llama prefill, kernels by pattern",))
"""Models that are compiled while `benchmarks.models.kernels.replaced` is in force."""
