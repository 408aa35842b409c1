"""Where Scalar is reported to leave out the bias of a copy, sums with a number are computed elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.source import UNKNOWN
from nki.graph.emit.kit.engines import EngineOps
from nki.graph.ir import TensorType
from nki.graph.kernels import compile_function
from nki.isa import alu
from nki.options import from_environment
from nki.target.load import load_target
from tests.support import environment

X = np.linspace(-3, 3, 128 * 512, dtype=np.float32).reshape(128, 512)


def kernel(target: str) -> Any:
    def affine(a: Any, out: Any) -> None:
        engines, tile = EngineOps(load_target(target)), nl.load(a)
        for _ in range(6):
            tile = engines.scalar(tile, alu.MULTIPLY, 0.5, alu.ADD, 1.25)
        nisa.dma_copy(dst=out, src=tile)

    return affine


@pytest.mark.parametrize(("target", "on_scalar"), [("trn1", False), ("trn2", True), ("trn3", True)])
def test_a_bias_of_a_copy(target: str, on_scalar: bool) -> None:
    types = [TensorType(X.shape, nl.float32)] * 2
    chosen = load_target(target)
    program = compile_function("counted", kernel(target), types, UNKNOWN, chosen, from_environment())[0]
    issued = [each for each in program.body.walk() if each.instruction.name == "activation"]
    assert any(each.arguments.bias is not None for each in issued) == on_scalar


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_numbers_are_the_same(target: str) -> None:
    out = np.zeros_like(X)
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        nki.simulate(kernel(target))(X, out)
    wanted = X
    for _ in range(6):
        wanted = wanted * np.float32(0.5) + np.float32(1.25)
    np.testing.assert_array_equal(out, wanted)
