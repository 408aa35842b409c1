"""NKI, the Neuron Kernel Interface: check, compile, run and time Trainium kernels on any machine."""

from __future__ import annotations

from nki import isa as isa
from nki import language as language
from nki.core import errors as errors
from nki.jit import jit, simulate
from nki.version import version

__all__ = ["errors", "isa", "jit", "language", "simulate"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'nki' has no attribute {name!r}")
