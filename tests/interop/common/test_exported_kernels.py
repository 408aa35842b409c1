"""Models with kernels that were exported, compiled in another process by ``nki cc --import``; inputs of ``nki run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.interop.jax import kernels
from tests.interop.torch.kernels import assign, duplicate, multiply
from tests.tools.running import nki

KERNELS = "tests.interop.torch.kernels"
CALL = jax.export.DisabledSafetyCheck.custom_call("AwsNeuronCustomNativeKernel")


def ran(file: Path, *inputs: Any) -> np.ndarray:
    """The first result of a compiled model."""
    names = []
    for number, array in enumerate(inputs):
        names.append(str(file.with_suffix(f".{number}.npy")))
        np.save(names[-1], array)
    nki("run", str(file), "--inputs", ",".join(names), "-o", str(file.with_suffix("")))
    return np.load(next(file.with_suffix("").glob("*.npy")))


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return multiply(a + 1, b) * 2


class Copy(torch.nn.Module):
    """An operator whose body hands a kernel a tensor to write to."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return duplicate(a * b) + 1


class Cache(torch.nn.Module):
    """An operator that writes to its argument."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        cache = torch.zeros_like(a)
        assign(cache, a - b)
        return cache * 3


@pytest.mark.parametrize("make", [Product, Copy, Cache])
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning")
def test_a_program_of_torch_export_with_operators(make: type[torch.nn.Module], tmp_path: Path) -> None:
    model, a, b = make(), torch.randn(4, 8), torch.randn(4, 8)
    torch.export.save(torch.export.export(model, (a, b)), tmp_path / "m.pt2")
    nki("cc", str(tmp_path / "m.pt2"), "--target", "trn2", "--import", KERNELS)
    np.testing.assert_allclose(ran(tmp_path / "m.neff", a, b), model(a, b).numpy(), rtol=1e-6)


def exported(function: Any, file: Path, *arrays: Any) -> Path:
    program = jax.export.export(jax.jit(function), platforms=["neuron"], disabled_checks=[CALL])(*arrays)
    if file.suffix == ".mlirbc":
        file.write_bytes(program.mlir_module_serialized)
    else:
        file.write_text(program.mlir_module())
    return file


@pytest.mark.parametrize("name", ["m.mlir", "m.mlirbc"])
def test_a_program_of_jax_export_with_a_kernel_and_its_numbers(name: str, tmp_path: Path) -> None:
    a = jnp.arange(32.0).reshape(4, 8)
    file = exported(lambda a: kernels.scaled(a, 5.0) + kernels.scaled(a), tmp_path / name, a)
    nki("cc", str(file), "--target", "trn2", "--import", "tests.interop.jax.kernels")
    np.testing.assert_array_equal(ran(tmp_path / "m.neff", a), np.asarray(a) * 8)


def test_kernels_that_cannot_be_compiled_again_are_told(tmp_path: Path) -> None:
    a = jnp.ones((4, 8))
    file = str(exported(lambda a: kernels.scaled(a) + 1, tmp_path / "m.mlir", a))
    told = nki("cc", file, code=1).stderr
    assert "graph.reference" in told
    assert "--import MODULE" in told
    assert "which is not in tests.interop.torch.kernels" in nki("cc", file, "--import", KERNELS, code=1).stderr
    pair = str(exported(lambda a: kernels.several({"x": a, "y": a})[0], tmp_path / "pair.mlir", a))
    told = nki("cc", pair, "--import", "tests.interop.jax.kernels", code=1).stderr
    assert "which the model does not hold" in told
    assert "kernel.import" in nki("cc", file, "--import", "no_such_module", code=2).stderr


def test_inputs_of_64_bits_are_narrowed_if_they_fit(tmp_path: Path) -> None:
    text = (
        "module { func.func @main(%i: tensor<3xi32>, %x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "%0 = stablehlo.convert %i : (tensor<3xi32>) -> tensor<3xf32>\n"
        "%1 = stablehlo.add %0, %x : tensor<3xf32>\nreturn %1 : tensor<3xf32> } }"
    )
    (tmp_path / "m.mlir").write_text(text)
    nki("cc", str(tmp_path / "m.mlir"), "--target", "trn2")
    file = tmp_path / "m.neff"
    assert ran(file, np.array([1, -2, 3]), np.array([0.5, 1, np.inf])).tolist() == [1.5, -1, np.inf]
    np.save(tmp_path / "good.npy", np.ones(3, np.float32))
    for bad, code in ((np.array([1, 1 << 31, 3]), "graph.range"), (np.arange(4), "give an array of 3 and int32")):
        np.save(tmp_path / "bad.npy", bad)
        told = nki("run", str(file), "--inputs", f"{tmp_path}/bad.npy,{tmp_path}/good.npy", code=2).stderr
        assert code in told
