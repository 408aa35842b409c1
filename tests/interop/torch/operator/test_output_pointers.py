"""Operators whose bodies give kernels a tensor to write to, in models that are compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nki
import nki.isa as nisa
import nki.language as nl
from nki.interop.torch import nki_op, wrap_nki

SHAPE = (128, 4)


@nki.jit
def doubled(source, result):
    """``result[...] = 2 * source``."""
    tile = nl.ndarray(SHAPE, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=result, src=tile)


@nki_op("nki_pointers::double", mutates_args={})
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    doubled(x, out)
    return out


@nki_op("nki_pointers::wrapped", mutates_args={})
def wrapped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_nki(doubled)(x, out)
    return out


@nki_op("nki_pointers::several", mutates_args={})
def several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Written twice, by PyTorch as well, and a part of a larger tensor."""
    out, parts = torch.empty_like(x), torch.zeros(2, *SHAPE)
    doubled(x, out)
    doubled(out, parts[1])
    out += 1
    return out, parts


@nki_op("nki_pointers::learned", mutates_args={})
def learned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    doubled(x, out)
    return out


learned.register_autograd(lambda _, gradient: learned(gradient.contiguous()))


@nki_op("nki_pointers::nested", mutates_args={})
def nested(x: torch.Tensor) -> torch.Tensor:
    return double(x) + learned(double(x))


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 1e9, lambda a: a - 1, lambda a: double(a) * 3, (x,))


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch.compiler.reset()
    made: Callable[..., Any] = torch.compile(function, backend="neuron", fullgraph=True, options=options)
    return made


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a kernel": (lambda x: double(x) + 1, lambda x: 2 * x + 1),
    "without a name": (lambda x: wrapped(x) + 1, lambda x: 2 * x + 1),
    "again and again": (lambda x: double(double(x)) + double(x), lambda x: 6 * x),
    "several": (several, lambda x: (2 * x + 1, torch.stack([torch.zeros_like(x), 4 * x]))),
    "inside of another": (nested, lambda x: 6 * x),
    "a branch": (branches, lambda x: 6 * x),
}


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_results(case: str, lnc: int) -> None:
    function, reference = CASES[case]
    x = torch.randn(SHAPE)
    for found, wanted in zip(*map(_several, (compiled(function, lnc=lnc)(x), reference(x))), strict=True):
        assert torch.equal(found, wanted)


def _several(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_gradients() -> None:
    x = torch.randn(SHAPE, requires_grad=True)
    compiled(lambda x: learned(x) * x)(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 4 * x.detach(), rtol=0, atol=0)


def test_arguments_are_not_written() -> None:
    x = torch.randn(SHAPE)
    before = x.clone()
    assert torch.equal(compiled(lambda x: double(x) - x)(x), before)
    assert torch.equal(x, before)
