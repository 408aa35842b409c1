"""``nki.jax``: `nki.interop.jax` under a shorter name, ``nki.jax.compile(function)``."""

from __future__ import annotations

from nki.interop.jax import (
    TARGET,
    CompiledFunction,
    compile,
    error_behind,
    fallback_reason,
    forget,
    kernel_errors,
    provenance,
    traced_call,
    with_vjp,
    without_ffi,
)

__all__ = [
    "TARGET",
    "CompiledFunction",
    "compile",
    "error_behind",
    "fallback_reason",
    "forget",
    "kernel_errors",
    "provenance",
    "traced_call",
    "with_vjp",
    "without_ffi",
]
