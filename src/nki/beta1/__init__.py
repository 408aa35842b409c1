"""The first NKI, which was ``neuronxcc.nki``: its language, on the instructions of today.

``import nki.beta1 as nki`` stands for ``import neuronxcc.nki as nki``; everything is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FOUND_IN = {
    "jit": "decorators",
    "trace": "decorators",
    "simulate_kernel": "decorators",
    "baremetal": "measuring",
    "benchmark": "measuring",
    "profile": "measuring",
    "tensor": "tensors.tensor",
}
_NAMED = {"tensor": "Tensor"}
_MODULES = ("compiler", "isa", "language", "typing")

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "tensor",
    "trace",
    "typing",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"nki.beta1.{name}")
    if name in _FOUND_IN:
        return getattr(import_module(f"nki.beta1.{_FOUND_IN[name]}"), _NAMED.get(name, name))
    raise AttributeError(f"module 'nki.beta1' has no attribute {name!r}", name=name)
