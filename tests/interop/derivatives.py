"""Kernels whose derivatives the tests of both frameworks ask for."""

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl


def load(array: Any) -> Any:
    tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def product(a, b, scale=1.0):
    """``a * b * scale``; its arguments are what its derivative needs, so that there are higher ones."""
    x = load(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=load(b), op=nl.multiply)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=scale)
    return store(x)


def product_backward(residuals, gradient, scale):
    a, b = residuals
    return product(gradient, b, scale=scale), product(gradient, a, scale=scale)


product.defvjp(None, product_backward)


@nki.jit
def exponential(a):
    """``exp(a)``; its derivative needs its result."""
    x = load(a)
    nisa.activation(dst=x, op=nl.exp, data=x)
    return store(x)


def exponential_forward(a):
    result = exponential(a)
    return result, result


exponential.defvjp(exponential_forward, lambda result, gradient: (product(gradient, result),))


@nki.jit
def halves(pair, counts, wanted=True):
    """A tree in, a tree out: ``{"sum": x + y, "rest": (x - y, counts)}``."""
    x, y = load(pair["x"]), load(pair["y"])
    total = load(pair["x"])
    nisa.tensor_tensor(dst=total, data1=x, data2=y, op=nl.add)
    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.subtract)
    return {"sum": store(total), "rest": (store(x), store(load(counts)))}


SEEN: list[Any] = []
"""What the backward of `halves` was called with last."""


def halves_backward(residuals, gradient, **constants):
    SEEN[:] = [residuals, gradient, constants]
    total, (difference, counts) = gradient["sum"], gradient["rest"]
    assert counts is None
    return {"pair": {"x": total + difference, "y": total - difference}}


halves.defvjp(None, halves_backward)


@nki.jit
def fill_from(target, source):
    """``target[...] = source``, which is returned too."""
    nisa.dma_copy(dst=target, src=load(source))
    return target


fill_from.defvjp(None, lambda residuals, gradient: (None, gradient))


def with_backward(backward: Any, forward: Any = None) -> Any:
    """`product` with another derivative."""
    return nki.jit(product.func).defvjp(forward, backward)
