"""Operators that draw: their distributions at a fixed key, what decides them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from nki.graph.errors import GraphError
from nki.graph.importers.torch.import_graph import import_graph
from nki.graph.importers.torch.types import host_tensor
from nki.graph.stablehlo.write import write
from tests.graph import xla
from tests.graph.importers.torch import reached

N = 2048

LEAST = 1e-3
"""How rare a difference may be that chance alone explains; keys are fixed, so that the answer is always the same."""

Draw = Callable[[], torch.Tensor]


def empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(N, dtype=dtype)


CURVES: dict[str, tuple[Draw, Any]] = {
    "rand": (lambda: torch.rand(N), stats.uniform()),
    "rand_like": (lambda: torch.rand_like(torch.zeros(N)), stats.uniform()),
    "randn": (lambda: torch.randn(N), stats.norm()),
    "randn_like": (lambda: torch.randn_like(torch.zeros(N)), stats.norm()),
    "normal": (lambda: torch.normal(2.0, 3.0, (N,)), stats.norm(2, 3)),
    "normal_": (lambda: empty().normal_(2, 3), stats.norm(2, 3)),
    "normal-means": (lambda: torch.normal(torch.full((N,), 2.0), 3.0), stats.norm(2, 3)),
    "normal-deviations": (lambda: torch.normal(2.0, torch.full((N,), 3.0)), stats.norm(2, 3)),
    "normal-both": (lambda: torch.normal(torch.full((N,), 2.0), torch.full((N,), 3.0)), stats.norm(2, 3)),
    "uniform_": (lambda: empty().uniform_(-3, 2), stats.uniform(-3, 5)),
    "exponential_": (lambda: empty().exponential_(2.5), stats.expon(scale=0.4)),
    "cauchy_": (lambda: empty().cauchy_(1, 2), stats.cauchy(1, 2)),
    "log_normal_": (lambda: empty().log_normal_(0.5, 0.25), stats.lognorm(s=0.25, scale=np.exp(0.5))),
    "randperm": (lambda: torch.randperm(N) / N, stats.uniform()),
    "gumbel": (lambda: -torch.empty(N).exponential_().log(), stats.gumbel_r()),
}

CHANCES = (0.1, 0.0, 0.5, 0.4, 0.0)


def chances(*rows: int) -> torch.Tensor:
    """`CHANCES` as a tensor that is computed, since constants have no place in a graph without inputs."""
    number = torch.arange(5)
    found = sum((number == k) * chance for k, chance in enumerate(CHANCES))
    assert isinstance(found, torch.Tensor)
    return found.expand(*rows, 5)


WHOLE: dict[str, tuple[Draw, Callable[[int], float]]] = {
    "randint": (lambda: torch.randint(7, (N,)), lambda k: (0 <= k < 7) / 7),
    "randint-low": (lambda: torch.randint(-4, 3, (N,)), lambda k: (-4 <= k < 3) / 7),
    "randint-float": (lambda: torch.randint(3, (N,), dtype=torch.float32), lambda k: (0 <= k < 3) / 3),
    "randint_like": (lambda: torch.randint_like(empty(), 5), lambda k: (0 <= k < 5) / 5),
    "randint_like-low": (lambda: torch.randint_like(empty(), -2, 5), lambda k: (-2 <= k < 5) / 7),
    "random_-to": (lambda: empty().random_(6), lambda k: (0 <= k < 6) / 6),
    "random_-from": (lambda: empty(torch.int64).random_(-3, 4), lambda k: (-3 <= k < 4) / 7),
    "random_-bool": (lambda: empty(torch.bool).random_(), lambda k: 0.5 * (k in (0, 1))),
    "geometric_": (lambda: empty().geometric_(0.3), lambda k: 0.3 * 0.7 ** (k - 1) * (k > 0)),
    "geometric_-whole": (lambda: empty(torch.int64).geometric_(0.9), lambda k: 0.9 * 0.1 ** (k - 1) * (k > 0)),
    "bernoulli": (lambda: torch.bernoulli(torch.full((N,), 0.3)), stats.bernoulli(0.3).pmf),
    "bernoulli_": (lambda: empty().bernoulli_(0.3), stats.bernoulli(0.3).pmf),
    "bernoulli_-tensor": (lambda: empty().bernoulli_(torch.full((N,), 0.3)), stats.bernoulli(0.3).pmf),
    "dropout": (lambda: F.dropout(torch.ones(N), 0.75), lambda k: {0: 0.75, 4: 0.25}.get(k, 0)),
    "dropout2d": (lambda: F.dropout2d(torch.ones(N, 2, 1, 1), 0.75), lambda k: {0: 0.75, 4: 0.25}.get(k, 0)),
    "multinomial": (lambda: torch.multinomial(chances() * 3, N, replacement=True), lambda k: CHANCES[k]),
    "multinomial-one": (lambda: torch.multinomial(chances(N), 1), lambda k: CHANCES[k]),
    "multinomial-first": (lambda: torch.multinomial(chances(N), 3)[:, 0], lambda k: CHANCES[k]),
    "gumbel_softmax": (
        lambda: F.gumbel_softmax(chances(N).log(), hard=True).argmax(1), lambda k: CHANCES[k]
    ),
}  # fmt: skip


def drawn(functions: list[Draw], words: tuple[int, int] = (3, 4)) -> list[torch.Tensor]:
    """Results of functions without arguments, with a key of two words."""
    graph = make_fx(
        functionalize(lambda: [function() for function in functions]),
        decomposition_table=reached.decompositions(),
        tracing_mode="fake",
    )()
    made = import_graph(graph)
    reached.see(graph)
    assert made.random and not made.inputs
    results = xla.run(write(made.module), [np.array(words, np.uint32)])
    return [host_tensor(np.array(results[kind.number]), kind.dtype) for kind in made.outputs]


def test_curves_are_those_of_the_distributions() -> None:
    reached.begin()
    found = drawn([function for function, _ in CURVES.values()])
    reached.assert_reached("curves")
    for (name, (_, curve)), values in zip(CURVES.items(), found, strict=True):
        assert values.dtype == torch.float32 and values.isfinite().all(), name
        assert stats.kstest(values.double().numpy(), curve.cdf).pvalue > LEAST, name
    assert float(found[list(CURVES).index("exponential_")].min()) > 0
    assert not torch.equal(found[0], found[1])


def test_whole_numbers_are_as_frequent_as_they_should_be() -> None:
    reached.begin()
    found = drawn([function for function, _ in WHOLE.values()])
    reached.assert_reached("whole")
    for (name, (function, chance)), values in zip(WHOLE.items(), found, strict=True):
        assert values.dtype == function().dtype and values.shape == function().shape, name
        numbers, counts = np.unique(values.double().numpy(), return_counts=True)
        expected = np.array([chance(int(number)) for number in numbers]) * values.numel()
        assert (expected > 0).all() and (numbers == np.round(numbers)).all(), name
        enough = expected > 5
        rest = max(values.numel() - expected[enough].sum(), 1e-9)
        seen = [*counts[enough], values.numel() - counts[enough].sum()]
        assert stats.chisquare(seen, [*expected[enough], rest]).pvalue > LEAST if rest > 1 else True, name
        assert rest > 1 or stats.chisquare(seen[:-1], expected[enough]).pvalue > LEAST, name


def test_small_floats_stay_below_one_and_wide_integers_wrap() -> None:
    half, brain, bounds, every, byte = drawn(
        [
            lambda: torch.rand(8 * N, dtype=torch.float16),
            lambda: torch.rand(8 * N, dtype=torch.bfloat16),
            lambda: torch.randint(-(2**31), 2**31 - 1, (N,)),
            lambda: torch.randint(-(2**31), 2**31, (N,), dtype=torch.int32),
            lambda: torch.randint(0, 256, (N,), dtype=torch.uint8),
        ]
    )
    assert float(half.max()) < 1 and float(brain.max()) < 1
    for values, low, high in ((bounds, -(2**31), 2**31), (every, -(2**31), 2**31), (byte, 0, 256)):
        curve = stats.uniform(low, high - low)
        assert stats.kstest(values.double().numpy(), curve.cdf).pvalue > LEAST


def test_draws_without_replacement_differ_and_leave_out_what_has_no_chance() -> None:
    places, order, mask = drawn(
        [
            lambda: torch.multinomial(chances(64), 3),
            lambda: torch.randperm(300),
            lambda: F.alpha_dropout(torch.ones(N), 0.5, training=True),
        ]
    )
    assert torch.equal(places.sort(1)[0], torch.tensor([[0, 2, 3]]).expand(64, 3))
    assert torch.equal(order.sort()[0], torch.arange(300)) and not torch.equal(order, torch.arange(300))
    assert mask.unique().numel() == 2


def test_derivative_of_random_slopes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.rrelu(x, training=True)

    x = torch.linspace(-2, 2, 512)
    leaf = x.clone().requires_grad_()
    fast = torch.compile(function, backend="neuron", fullgraph=True)
    torch.manual_seed(5)
    result = fast(leaf)
    result.sum().backward()
    torch.testing.assert_close(leaf.grad * x, result.detach())
    below = leaf.grad[x < 0].double().numpy()
    assert stats.kstest(below, stats.uniform(1 / 8, 1 / 3 - 1 / 8).cdf).pvalue > LEAST
    torch.manual_seed(5)
    torch.testing.assert_close(fast(leaf).detach(), result.detach(), rtol=0, atol=0)
    assert not torch.equal(fast(leaf).detach(), result.detach())


@pytest.mark.parametrize(
    "function", [lambda: torch.randint(0, 1 << 40, (3,)), lambda: torch.empty(3, dtype=torch.int64).random_()]
)
def test_numbers_of_more_than_32_bits_are_refused(function: Draw) -> None:
    with pytest.raises(GraphError, match=r"graph\.unsupported"):
        drawn([function])
