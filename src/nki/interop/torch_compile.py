"""The module that the entry point of `torch.compile` names; `nki.interop.torch` has the code."""

from __future__ import annotations

from nki.interop.torch.compile.backend import neuron

__all__ = ["neuron"]
