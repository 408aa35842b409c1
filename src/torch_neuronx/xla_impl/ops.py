"""``torch_neuronx.xla_impl.ops.nki_jit``, which is `torch_neuronx.nki_jit`."""

from __future__ import annotations

from nki.beta1.frameworks import nki_jit

__all__ = ["nki_jit"]
