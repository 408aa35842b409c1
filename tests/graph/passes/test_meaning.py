"""Every stage of the passes computes what the model computed: JAX's compiler runs both texts."""

from __future__ import annotations

import numpy as np
import pytest

from nki.graph.ir import Module
from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import STAGES, run_passes
from nki.graph.stablehlo.read import read
from nki.graph.stablehlo.write import write
from nki.target.load import load_target
from tests.graph import xla
from tests.graph.models import MODELS, lowered, wanted
from tests.graph.random_models import random_model


def _stages(module: Module) -> dict[str, str]:
    texts: dict[str, str] = {}
    run_passes(module, GraphContext(load_target("trn2")), after=lambda name, now: texts.update({name: write(now)}))
    return texts


@pytest.mark.parametrize("name", MODELS)
def test_stages_of_models_compute_the_same(name: str) -> None:
    texts = _stages(read(lowered(name)))
    assert list(texts) == list(STAGES)
    xla.assert_same(xla.run(texts["fused"], MODELS[name][1]), wanted(name))


@pytest.mark.parametrize("seed", range(24))
def test_stages_of_random_models_compute_the_same(seed: int) -> None:
    module, inputs = random_model(seed)
    before = xla.run(write(module), inputs)
    texts = _stages(read(write(module)))
    xla.assert_same(xla.run(texts["fused"], inputs), before)


@pytest.mark.parametrize("name", ["block", "attention_grad", "loops"])
def test_passes_are_deterministic_and_resume(name: str) -> None:
    text = lowered(name)
    one, two = _stages(read(text)), _stages(read(text))
    assert one == two
    for start in list(STAGES)[:-1]:
        context = GraphContext(load_target("trn2"))
        assert write(run_passes(read(one[start]), context, start=start)) == one["fused"]


def test_every_operation_keeps_a_line_of_the_model() -> None:
    module = run_passes(read(lowered("attention_grad")), GraphContext(load_target("trn2")))
    assert module.main.body
    for item in module.main.body:
        assert item.location.frame is not None
        assert item.location.frame.file.endswith("models.py")


def test_wide_types_are_gone() -> None:
    text = """
    func.func @main(%a: tensor<3xi64>, %b: tensor<3xf64>) -> (tensor<3xi64>, tensor<3xf64>, tensor<i64>) {
      %0 = stablehlo.constant dense<[1, 2147483647, -2147483648]> : tensor<3xi64>
      %1 = stablehlo.add %a, %0 : tensor<3xi64>
      %2 = stablehlo.convert %a : (tensor<3xi64>) -> tensor<3xf64>
      %3 = stablehlo.multiply %2, %b : tensor<3xf64>
      %4 = stablehlo.constant dense<7> : tensor<i64>
      return %1, %3, %4 : tensor<3xi64>, tensor<3xf64>, tensor<i64>
    }"""
    module = run_passes(read(text), GraphContext(load_target("trn2")))
    assert "64" not in "".join(str(v.type) for v in (*module.main.arguments, *module.main.results))
    found = xla.run(write(module), [np.array([1, 2, 3], np.int32), np.array([2, 3, 4], np.float32)])
    np.testing.assert_array_equal(
        found[0], np.array([2, 2**31 - 1 + 2, -(2**31) + 3]).astype(np.int64).astype(np.int32)
    )
    np.testing.assert_array_equal(found[1], [2, 6, 12])
    assert found[2] == 7
