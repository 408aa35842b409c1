"""A linear layer with GELU, through ``torch.compile(model, backend="neuron")``."""

from __future__ import annotations

from collections.abc import Callable

import torch

NAME = "Linear and GELU"


def prepared() -> Callable[[], object]:
    """A call without gradients."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU()).eval()
    compiled = torch.compile(model, backend="neuron")
    x = torch.ones(32, 64)

    def call() -> object:
        with torch.no_grad():
            return compiled(x)

    return call
