"""Kernels and operators that the tests of PyTorch share."""

import torch

import nki
import nki.isa as nisa
import nki.language as nl
from nki.interop.torch import nki_op


@nki.jit
def product(a, b):
    """``a * b`` for at most 128 rows."""
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.multiply)
    nisa.dma_copy(dst=result, src=left)
    return result


@nki.jit
def both_scaled(a, scale=1.0, dtype=None):
    """A structure of results: ``{"scaled": a * scale, "rest": (a, None)}``."""
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    copy = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=copy, src=tile)
    scaled = nl.ndarray(a.shape, dtype=dtype or a.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=scale)
    result = nl.ndarray(a.shape, dtype=dtype or a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=scaled)
    return {"scaled": result, "rest": (copy, None)}


@nki.jit
def fill_from(target, source):
    """``target[...] = source``."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    nisa.dma_copy(dst=target, src=tile)


@nki_op("nki_tests::multiply", mutates_args=())
def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return product(a, b)


@nki_op("nki_tests::duplicate", mutates_args={})
def duplicate(a: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    fill_from(out, a)
    return out


@nki_op("nki_tests::assign", mutates_args={"target"})
def assign(target: torch.Tensor, source: torch.Tensor) -> None:
    fill_from(target, source)


@nki_op("nki_tests::differentiable", mutates_args=())
def differentiable(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return product(a, b)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, gradient):
    a, b = ctx.saved_tensors
    return product(gradient.contiguous(), b), product(gradient.contiguous(), a)


differentiable.register_autograd(_backward, setup_context=_keep)


def matrix(columns=32, seed=0, dtype=torch.float32):
    """128 rows of random numbers."""
    return torch.randn(128, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)
