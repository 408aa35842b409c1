"""Python numbers that are others in the next call of a compiled function: eager results, without a program for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nki.core.errors import ArgumentError
from nki.interop.torch import compiled_graphs
from nki.report import NkiWarning

floats = torch.linspace(-2, 2, 60).view(4, 15)
small = floats.bfloat16()
whole = torch.arange(-6, 6).view(3, 4)

FLOATS = (1.0, 0.5, 0.3, 0.7)
INTS = (3, 5, 2, -4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def programs(function: Callable[..., Any], numbers: Sequence[Any], *tensors: torch.Tensor, **options: Any) -> int:
    """How many programs are made; each call is compared with eager execution."""
    compiled = torch.compile(function, backend="neuron", fullgraph=True, **options)
    before = {graph.name for graph in compiled_graphs()}
    for number in numbers:
        torch.testing.assert_close(compiled(*tensors, number), function(*tensors, number), rtol=1e-5, atol=1e-6)
    return len([graph for graph in compiled_graphs() if graph.name not in before])


@pytest.mark.parametrize(
    "function",
    [
        lambda s: (floats * s + s - floats / s, s - floats, floats > s, floats != s),
        lambda s: (floats.abs() ** s, torch.pow(s, floats), floats.clamp(-s, s), floats.clamp(max=s)),
        lambda s: (
            torch.where(floats > s, floats, s),
            floats.masked_fill(floats > 0, s),
            torch.full((3,), s),
            torch.full_like(floats, s),
        ),
        lambda s: (
            floats.add(floats, alpha=1 - s),
            floats.add(s, alpha=2),
            torch.rsub(floats, 2, alpha=s),
            floats.sub(s, alpha=3),
        ),
        lambda s: (F.leaky_relu(floats, s), F.elu(floats, s), F.hardtanh(floats, -s, s), F.threshold(floats, s, s * 2)),
        lambda s: (
            torch.lerp(floats, floats * 2, s),
            torch.addcmul(floats, floats, floats, value=s),
            (floats / s).softmax(-1),
        ),
        lambda s: (whole * s, whole / s, whole + s, floats.sum() * s, whole.sum() + s, (floats > 0) * s),
    ],
    ids=["arithmetic", "powers", "choices", "factors", "activations", "mixtures", "dtypes"],
)
def test_a_float_that_changes_is_an_argument(function: Callable[[float], Any]) -> None:
    assert programs(function, FLOATS) == 2


def test_a_float_has_the_precision_that_it_has_beside_bfloat16() -> None:
    """Sums round it to bfloat16 first, as eager execution does; products do not."""

    def function(s: float) -> Any:
        return small * s, small / s, small + s, s - small, small > s, torch.lerp(small, small * 2, s), small.sum() * s

    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    for number in FLOATS:
        for found, wanted in zip(compiled(number), function(number), strict=True):
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)


def test_what_is_computed_of_numbers_alone_keeps_the_digits_of_python() -> None:
    def average(x: torch.Tensor, s: float) -> torch.Tensor:
        return x * (1 - s) + x * (1 - s**2) ** 0.5

    assert programs(average, (0.9, 0.99, 0.9999, 0.999999), floats) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda k: (floats * k, floats + k - 1, floats / k, floats**k, small * k, floats * (1 / k)),
        lambda k: (whole * k + k, whole / k, whole > k, whole.sum() * k, k * 2),
    ],
    ids=["floats", "integers"],
)
def test_an_integer_that_changes_is_an_argument(function: Callable[[int], Any]) -> None:
    assert programs(function, INTS) == 2


def test_an_integer_that_decides_a_size_is_another_program() -> None:
    assert programs(lambda k: (floats[:, :k] * k, torch.arange(k)), (3, 5, 2)) == 3


def test_a_flag_chooses_a_program() -> None:
    assert programs(lambda flag: floats * 2 if flag else floats + 1, (True, False, True)) == 2


def test_an_integer_beyond_32_bits_is_refused_when_it_comes() -> None:
    compiled = torch.compile(lambda k: whole * k, backend="neuron", fullgraph=True)
    compiled(3)
    assert torch.equal(compiled(5), whole * 5)
    with pytest.raises(ArgumentError, match=r"graph\.range"):
        compiled((1 << 31) + 8)


def test_gradients_with_a_number_that_changes() -> None:
    def loss(x: torch.Tensor, s: float, k: int) -> torch.Tensor:
        return (torch.where(x > s, x * s, x + s).sin() * k).sum()

    compiled = torch.compile(loss, backend="neuron", fullgraph=True)
    before = len(compiled_graphs())
    for s, k in ((1.0, 2), (0.5, 3), (0.3, 5), (0.1, 7)):
        one, two = (floats.clone().requires_grad_() for _ in range(2))
        compiled(one, s, k).backward()
        loss(two, s, k).backward()
        torch.testing.assert_close(one.grad, two.grad)
    assert len(compiled_graphs()) - before <= 4


def test_dynamic_functions_take_other_sizes_and_numbers() -> None:
    function = torch.compile(lambda x, s, k: (x * s + k).sum(0), backend="neuron", dynamic=True)
    for batch in (2, 4, 5):
        x = torch.randn(batch, 3)
        torch.testing.assert_close(function(x, batch * 0.3, batch), (x * (batch * 0.3) + batch).sum(0))


def test_a_float_beside_an_operator_on_the_host() -> None:
    def function(x: torch.Tensor, s: float) -> torch.Tensor:
        return torch.fft.rfft((x * s).flatten()).real.sum() * (1 - s)

    compiled = torch.compile(function, backend="neuron", options={"fallback": "host"})
    x = torch.randn(5000)  # longer than transforms that are products with a matrix
    with pytest.warns(NkiWarning, match=r"torch\.host"):
        for s in FLOATS:
            torch.testing.assert_close(compiled(x, s), function(x, s), rtol=1e-4, atol=1e-4)


def test_dropout_with_a_rate_that_changes() -> None:
    drop = torch.compile(F.dropout, backend="neuron", fullgraph=True)
    for rate in (0.5, 0.25, 0.75):
        found = drop(torch.ones(4096), rate)
        assert abs(float((found == 0).float().mean()) - rate) < 0.05
        torch.testing.assert_close(found.max(), torch.tensor(1 / (1 - rate)))
