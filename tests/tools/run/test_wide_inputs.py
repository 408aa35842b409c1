"""Numbers of 64 bits on the command line of a model: taken if 32 bits hold them, else refused in its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from nki.runtime import Model
from nki.tools.run.model import model_inputs

TEXT = """
func.func @main(%i: tensor<i64>, %x: tensor<4xi64>, %f: tensor<4xf64>) -> tensor<4xi64> {
  %b = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i64>) -> tensor<4xi64>
  %c = stablehlo.convert %f : (tensor<4xf64>) -> tensor<4xi64>
  %0 = stablehlo.add %b, %x : tensor<4xi64>
  %1 = stablehlo.add %0, %c : tensor<4xi64>
  return %1 : tensor<4xi64>
}
"""


@pytest.fixture(scope="module")
def model() -> Model:
    return compile_module(TEXT, target="trn2", name="wide").model


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("3", "4:int64:x.npy", "4:float64:f.npy"), (3, [2, -1, 5, 7], [0.5, 1, 2, 3])),
        (("-3", "[1, 2, 3, 4]", "[1, 2.5, 3, 4]"), (-3, [1, 2, 3, 4], [1, 2.5, 3, 4])),
        (("True", "4:int64:ones", "4:float64:zeros"), (1, [1] * 4, [0] * 4)),
    ],
)
def test_numbers_of_64_bits_are_taken(model: Model, tmp_path: Path, monkeypatch: Any, given: Any, wanted: Any) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array([2, -1, 5, 7]))
    np.save("f.npy", np.array([0.5, 1, 2, 3]))
    texts = [f"argument{number}={text}" for number, text in enumerate(given)]
    made = model_inputs(model, texts, None, 0)
    assert [array.dtype.name for array in made] == ["int32", "int32", "float32"]
    assert [array.tolist() for array in made] == [*wanted]
    i, x, f = wanted
    assert model.run(made).results[0].tolist() == [i + a + int(b) for a, b in zip(x, f, strict=True)]


@pytest.mark.parametrize(
    ("number", "text", "code", "says"),
    [
        (0, "5000000000", "graph.range", "5000000000"),
        (0, "3:int64", "run.arguments", "write --arg argument0=NUMBER"),
        (0, "3.5", "run.arguments", "3.5"),
        (0, "None", "run.arguments", "None"),
        (0, "10" * 20, "run.arguments", "10101"),
        (1, "[[1], [1, 2]]", "run.arguments", "numbers that int32 has"),
        (1, "4:int64:big.npy", "graph.range", "4294967296"),
        (2, "4:float64:big.npy", "arg.file-contents", "int64"),
        (2, "[1e300, 1, 1, 1]", "graph.range", "1e+300"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(
    model: Model, tmp_path: Path, monkeypatch: Any, number: int, text: str, code: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("big.npy", np.array([1, 2**32, 2, 3]))
    given = ["0", "4:int32:ones", "4:float32:ones"]
    given[number] = text
    with pytest.raises(NkiError) as caught:
        model_inputs(model, [f"argument{place}={value}" for place, value in enumerate(given)], None, 0)
    assert caught.value.code == code and says in f"{caught.value.message} {caught.value.fix}"
