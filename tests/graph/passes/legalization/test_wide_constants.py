"""Constants of 64 bits: the same numbers with 32 bits, or refused; never others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from nki.core.errors import NkiError
from nki.graph.compile import compile_module

BIG, LARGEST = 2**40, 2**63 - 1

REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sentinel": lambda i, m: torch.where(m, i, LARGEST).min(),
    "filled": lambda i, m: i.masked_fill(~m, -LARGEST).amax(),
    "sum": lambda i, m: i + BIG,
    "product": lambda i, m: i * -BIG,
    "full": lambda i, m: torch.full((5,), BIG) + i,
    "product of two": lambda i, m: torch.full((5,), 2**20) * torch.full((5,), 2**20) + i,
    "sum of many": lambda i, m: torch.arange(100000).sum() + i,
    "power": lambda i, m: torch.full((5,), 10) ** 12 - i,
    "shift": lambda i, m: (torch.ones(5, dtype=torch.int64) << 40) + i,
    "negated": lambda i, m: -torch.full((5,), -(2**31)) - i,
    "converted": lambda i, m: torch.full((5,), 1e12).long() + i,
    "flat place": lambda i, m: torch.arange(3)[:, None] * 2**30 + i,
    "returned": lambda i, m: torch.arange(5) * 2**30,
    "tensor": lambda i, m: torch.minimum(torch.tensor([BIG, 1, 2**33, 2, 2**35]), i),
    "lower limit": lambda i, m: i.clamp(min=BIG),
    "range": lambda i, m: torch.arange(BIG, BIG + 5) - i,
    "float": lambda i, m: (i.double() * 1e300 / 1e300).float(),
    "double tensor": lambda i, m: torch.tensor([1e300], dtype=torch.float64) > i,
}
EXACT: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "on the way": lambda i, m: torch.full((5,), 2**20) * torch.full((5,), 2**20) // 2**20 + i,
    "prefix sums": lambda i, m: (torch.ones(5, dtype=torch.int64) * 2**30).cumsum(0) // 2**28 + i,
    "truth": lambda i, m: torch.where(torch.arange(5) * 2**30 > 2**31, i, -i),
    "float on the way": lambda i, m: (torch.full((5,), 1e300, dtype=torch.float64) * 1e-290).float() + i,
    "32 bits wrap": lambda i, m: torch.full((5,), 2**20, dtype=torch.int32) * 2**20 + i.int() + 5,
    "below": lambda i, m: i < BIG,
    "not above": lambda i, m: i > BIG,
    "equal": lambda i, m: i == -BIG,
    "above": lambda i, m: i >= -BIG,
    "limits": lambda i, m: i.clamp(-BIG, BIG),
    "fits": lambda i, m: torch.where(m, i, 2**31 - 1).min() + (-(2**31)),
    "infinite": lambda i, m: i.float() * 1e300,
    "largest float": lambda i, m: i.double().clamp(max=3.4028234663852886e38).float(),
}


def run(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    i, m = torch.arange(5), torch.tensor([False, True, True, False, True])
    torch.compiler.reset()
    return torch.compile(function, backend="neuron")(i, m), function(i, m)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_numbers_beyond_32_bits_are_refused(name: str) -> None:
    with pytest.raises((NkiError, BackendCompilerFailed), match=r"graph\.range"):
        run(REFUSED[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXACT)
def test_numbers_that_change_nothing_are_taken(name: str) -> None:
    mine, theirs = run(EXACT[name])
    assert torch.equal(mine.double().nan_to_num(7.0), theirs.double().nan_to_num(7.0))


@pytest.mark.filterwarnings("ignore")
def test_float64_arguments_beyond_float32_are_refused() -> None:
    torch.compiler.reset()
    with pytest.raises(NkiError, match=r"graph\.range"):
        torch.compile(lambda x: x * 2, backend="neuron")(torch.tensor([1e300, 1.0], dtype=torch.float64))


def _module(constant: str, use: str) -> str:
    return f"""
    func.func @main(%x: tensor<4xi64>) -> tensor<4xi64> {{
      %c = stablehlo.constant dense<{constant}> : tensor<i64>
      %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i64>) -> tensor<4xi64>
      %0 = stablehlo.{use} : tensor<4xi64>
      return %0 : tensor<4xi64>
    }}
    """


@pytest.mark.parametrize(
    ("constant", "use", "taken"),
    [
        (LARGEST, "minimum %x, %b", True),
        (-BIG, "maximum %x, %b", True),
        (LARGEST, "maximum %x, %b", False),
        (BIG, "add %x, %b", False),
        (2**31 - 1, "minimum %x, %b", True),
    ],
)
def test_constants_of_stablehlo(constant: int, use: str, taken: bool) -> None:
    x = np.array([1, -2, 2**31 - 1, -(2**31)], np.int32)

    def call() -> Any:
        return compile_module(_module(str(constant), use), target="trn2").run([x])[0]

    if taken:
        assert np.array_equal(call(), x)
    else:
        with pytest.raises(NkiError, match=r"graph\.range"):
            call()


COMPUTED = {
    "product": ("%a = stablehlo.multiply %k, %k : tensor<4xi64>", False),
    "quotient": ("%p = stablehlo.multiply %k, %k : tensor<4xi64> %a = stablehlo.divide %p, %k : tensor<4xi64>", True),
    "shift": ("%a = stablehlo.shift_left %k, %k : tensor<4xi64>", True),  # by more than 64 bits: 0
    "large": (
        "%i = stablehlo.iota dim = 0 : tensor<20000xi64> %m = stablehlo.constant dense<1048576> : tensor<20000xi64>"
        "%p = stablehlo.multiply %i, %m : tensor<20000xi64> %a = stablehlo.slice %p [19996:20000] :"
        "(tensor<20000xi64>) -> tensor<4xi64>",
        False,
    ),
    "sum": (
        "%z = stablehlo.constant dense<0> : tensor<i64> %t = stablehlo.constant dense<1073741824> : tensor<4x4xi64>"
        "%s = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x4xi64>,"
        "tensor<i64>) -> tensor<4xi64> %a = stablehlo.divide %s, %k : tensor<4xi64>",
        True,
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_constants_of_stablehlo(name: str) -> None:
    made, fits = COMPUTED[name]
    text = f"""
    func.func @main(%x: tensor<4xi64>) -> tensor<4xi64> {{
      %k = stablehlo.constant dense<1048576> : tensor<4xi64>
      {made}
      %0 = stablehlo.add %x, %a : tensor<4xi64>
      return %0 : tensor<4xi64>
    }}
    """
    x = np.array([1, -2, 3, 0], np.int32)
    wanted = {"quotient": 2**20, "sum": 2**12, "shift": 0}
    if fits:
        assert np.array_equal(compile_module(text, target="trn2").run([x])[0], x + wanted[name])
    else:
        with pytest.raises(NkiError, match=r"graph\.range"):
            compile_module(text, target="trn2")


def test_float64_constants_of_stablehlo() -> None:
    text = """
    func.func @main(%x: tensor<f64>) -> tensor<f64> {
      %c = stablehlo.constant dense<1.0E+300> : tensor<f64>
      %0 = stablehlo.multiply %x, %c : tensor<f64>
      return %0 : tensor<f64>
    }
    """
    with pytest.raises(NkiError, match=r"graph\.range"):
        compile_module(text, target="trn2")
