"""A kernel with a derivative in a process that imported PyTorch and nothing of its integration."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


a = torch.ones(4, 8)
assert (double(a) == 2).all()  # PyTorch was met before the kernel had a derivative
double.defvjp(None, lambda residuals, gradient: (double(gradient),))
double(a.requires_grad_()).sum().backward()
assert (a.grad == 2).all()
"""


@pytest.mark.slow
def test_its_gradient_is_found(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, program], check=True)
