"""What does not run as a compiled program says so: layers, sizes beyond the limit, single operators, derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from nki.core.errors import ExecutionError
from nki.interop.torch import compiled_graphs, eager_on, enable_device
from nki.interop.torch.compile.graph_breaks import _TOLD as FUNCTIONS
from nki.interop.torch.eager.single_operators import _TOLD as OPERATORS
from nki.report import NkiWarning


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    FUNCTIONS.clear()
    OPERATORS.clear()
    yield
    torch._dynamo.reset()
    eager_on("device")


def made() -> set[str]:
    return {graph.name for graph in compiled_graphs()}


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(x)[0])


@pytest.mark.parametrize(
    "make",
    [lambda: nn.LSTM(4, 4), lambda: nn.RNN(4, 4), lambda: nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 4)), Tagger],
    ids=["LSTM", "RNN", "sequence", "model"],
)
def test_recurrent_layers_say_once_that_they_run_in_python(make: Callable[[], nn.Module]) -> None:
    model, x = make(), torch.randn(3, 2, 4)
    compiled = torch.compile(model, backend="neuron")
    with pytest.warns(NkiWarning, match=r"torch\.python\].*allow_rnn") as told, torch.no_grad():
        compiled(x)
        compiled(x)
    assert len(told) == 1


def test_other_layers_are_compiled_after_one_was_given_up() -> None:
    """PyTorch calls all layers of its own by the same code."""
    with pytest.warns(NkiWarning, match=r"torch\.python"), torch.no_grad():
        torch.compile(nn.LSTM(4, 4), backend="neuron")(torch.randn(3, 2, 4))
    layer, x, before = nn.TransformerEncoderLayer(4, 2, 8).eval(), torch.randn(3, 2, 4), made()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(layer, backend="neuron")(x), layer(x), rtol=1e-4, atol=1e-5)
    assert len(made() - before) == 1


def test_a_cache_that_grows_says_when_it_is_compiled_no_more() -> None:
    step = torch.compile(lambda cache, x: torch.cat([cache, x]).sum(0), backend="neuron")
    cache = torch.ones(1, 2)
    with torch._dynamo.config.patch(recompile_limit=2), pytest.warns(NkiWarning, match="recompile-limit") as told:
        for number in range(2, 7):
            assert torch.equal(step(cache, torch.ones(1, 2)), torch.full((2,), float(number)))
            cache = torch.cat([cache, torch.ones(1, 2)])
    assert len(told) == 1


def test_a_function_that_runs_in_python_is_told_and_not_what_the_device_does_for_it() -> None:
    """Dynamo looks at all functions that it meets, also at those of the device's operators."""
    enable_device()
    eager_on("host")

    @torch.compile(backend="neuron")
    def count(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + 1
            torch._dynamo.graph_break()
        return x.cpu().to("neuron")

    with pytest.warns(NkiWarning, match="count is not compiled") as told:
        assert count(torch.ones(3, device="neuron")).tolist() == [3, 3, 3]
    assert len(told) == 1


def test_an_operator_that_the_host_computes_says_so_once() -> None:
    enable_device()
    x = torch.arange(4, device="neuron")  # nothing is computed with tensors
    with pytest.warns(NkiWarning, match=r"torch\.host-operator\] aten::cumsum.* torch\.int64") as told:
        for _ in range(2):
            assert x.cumsum(0).tolist() == [0, 1, 3, 6]
    assert len(told) == 1


def test_nothing_is_said_where_the_host_was_asked_for() -> None:
    enable_device()
    eager_on("host")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (torch.arange(4, device="neuron") * 2).tolist() == [0, 2, 4, 6]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo looks at it
@pytest.mark.parametrize(
    "function",
    [lambda x: (x**3).sum(), lambda x: x.exp().view(3, 1), lambda x: x @ x],
    ids=["power", "view", "product"],
)
@pytest.mark.parametrize("allow_unused", [False, True])
def test_a_second_derivative_is_refused(function: Callable[[torch.Tensor], torch.Tensor], allow_unused: bool) -> None:
    weight = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(weight * 2).sum(), weight, create_graph=True)
    (wanted,) = torch.autograd.grad(function(weight * 2).sum(), weight)
    torch.testing.assert_close(gradient.detach(), wanted)
    with pytest.raises(RuntimeError, match="does not support double backward") as caught:
        torch.autograd.grad(gradient.sum(), weight, allow_unused=allow_unused)
    assert isinstance(caught.value, ExecutionError)
    assert caught.value.code == "torch.double-backward"


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo looks at it
def test_a_hessian_is_refused() -> None:
    compiled = torch.compile(lambda x: (x**3).sum(), backend="neuron", fullgraph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.functional.hessian(compiled, torch.tensor([1.0, 2.0]))
