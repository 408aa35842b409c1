"""One PyTorch model and one JAX function with kernels of both languages, compiled."""

from __future__ import annotations

import numpy as np
import pytest

import nki.beta1 as old
import nki.beta1.language as ol
from tests.beta1.both_languages import A, new_double

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")


@old.jit
def old_plus(a, by):
    out = ol.ndarray(a.shape, a.dtype, buffer=ol.shared_hbm)
    rows, columns = ol.arange(128)[:, None], ol.arange(32)[None, :]
    at = ol.program_id(0) * 32 + columns
    ol.store(out[rows, at], ol.load(a[rows, at]) + by)
    return out


on_two_programs = old_plus[2]
AXES = (ol.nc(2),)


def test_in_one_model_of_pytorch() -> None:
    import torch_neuronx  # noqa: F401 - registers the backend
    from torch_neuronx.xla_impl.ops import nki_jit

    class Model(torch.nn.Module):
        def forward(self, x):
            moved = old_plus[AXES](on_two_programs(torch.relu(x), 0.25), 0.25)
            return new_double[2](old_plus[ol.nc(2) * 1](on_two_programs(moved, 0.25), 0.25)) - x

    x = torch.from_numpy(A)
    wanted = 2 * (np.maximum(A, 0) + 1) - A
    np.testing.assert_allclose(Model()(x).numpy(), wanted, rtol=1e-6, atol=1e-6)
    compiled = torch.compile(Model(), backend="neuron", fullgraph=True)
    np.testing.assert_allclose(compiled(x).numpy(), wanted, rtol=1e-6, atol=1e-6)

    def halved(a, out):
        ol.store(out, ol.load(a) * 0.5)

    out = torch.zeros_like(x)
    nki_jit()(halved)(x, out)
    np.testing.assert_array_equal(out.numpy(), A * np.float32(0.5))


def test_in_one_function_of_jax() -> None:
    @jax.jit
    def both(x):
        return new_double[2](old_plus[ol.nc(2)](on_two_programs(jax.nn.relu(x), 0.5), 0.5)) - x

    np.testing.assert_allclose(np.asarray(both(jax.numpy.asarray(A))), 2 * (np.maximum(A, 0) + 1) - A, atol=1e-6)
