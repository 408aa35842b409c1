"""What PyTorch and JAX packages of the first NKI gave: ``torch_neuronx.nki_jit`` and ``jax_neuronx.nki_call``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import nki.beta1.language as nl
from nki.beta1.compiler import AUTO_ALLOC
from nki.beta1.decorators import trace
from nki.beta1.errors import refused
from nki.beta1.kernel import FRONT_ENDS, kernel_of

nki_jit = trace
"""Decorator of kernels that write to their last parameters: ``kernel[grid](a, b, out)``."""


def nki_call(func: Callable[..., Any], *args: Any, grid: Any = None, out_shape: Any, platform_target: str = "") -> Any:
    """Call a kernel that writes to its last parameters; returns new arrays instead.

    Args:
        func: the kernel, launched on a grid or not, or `functools.partial` of it with keyword arguments.
        args: arrays of JAX or NumPy.
        grid: the grid, an int or a tuple; None for the one of `func`.
        out_shape: for each output an object with ``shape`` and ``dtype``, as `jax.ShapeDtypeStruct`; several in a list.
        platform_target: the target, for example "trn2"; by default that of the environment.
    """
    several = isinstance(out_shape, list | tuple)
    shapes = tuple((tuple(each.shape), str(each.dtype)) for each in (out_shape if several else (out_shape,)))
    inner, keywords = (func.func, dict(func.keywords)) if isinstance(func, partial) else (func, {})
    if isinstance(func, partial) and func.args:
        raise refused("argument", "nki_call got a partial with positional arguments", "bind arguments by keyword")
    kernel = kernel_of(inner, platform_target)
    body = kernel_of(kernel.func) if kernel.func in FRONT_ENDS else kernel.func

    def returning(*arrays: Any) -> Any:
        made = [nl.ndarray(shape, dtype, buffer=nl.shared_hbm) for shape, dtype in shapes]
        body(*arrays, *made, **keywords)
        return tuple(made) if several else made[0]

    returning.__name__ = returning.__qualname__ = kernel.func.__name__
    setattr(returning, AUTO_ALLOC, getattr(kernel.func, AUTO_ALLOC, False))
    launched = kernel.of_function(returning)
    return (launched if grid is None else launched[grid])(*args)
