"""Single operators on ``device="neuron"``: by programs of their own, against the CPU, and what is left to the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from nki.core.errors import LaunchError
from nki.interop.torch import eager_on, enable_device, forget, on_device_counts, provenance, reasons
from nki.interop.torch.eager.single_operators import _MADE, clear

enable_device()

pytestmark = pytest.mark.filterwarnings(r"ignore:\[torch.host-operator:nki.report.NkiWarning")


def programs() -> dict[str, int]:
    """How many programs there are of each operator."""
    found: dict[str, int] = {}
    for (operator, *_), one in list(_MADE.items()):
        if not isinstance(one, str):
            found[operator.name()] = found.get(operator.name(), 0) + 1
    return dict(sorted(found.items()))


@pytest.fixture(autouse=True)
def _from_the_start() -> Iterator[None]:
    torch.manual_seed(0)
    clear()
    forget()
    yield
    eager_on("device")


def data(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (6, 8))


def test_operators_run_by_programs_that_are_kept() -> None:
    a, b = data(), data()
    there, other = a.to("neuron"), b.to("neuron")
    found = [(there * other + 1.5) @ other.t() for _ in range(3)]
    torch.testing.assert_close(found[-1].cpu(), (a * b + 1.5) @ b.t())
    assert provenance() == {}
    assert on_device_counts() == {"aten::add.out": 3, "aten::mm.out": 3, "aten::mul.out": 3}
    assert programs() == {"aten::add.Tensor": 1, "aten::mm": 1, "aten::mul.Tensor": 1}
    there[:3] + other[:3]
    there.bfloat16() + other.bfloat16()
    assert programs()["aten::add.Tensor"] == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.t().exp(),
        lambda x: x.clone().add_(x, alpha=2),
        lambda x: x[:, 2:5].mul_(3),
        lambda x: torch.mul(x, x, out=torch.empty_like(x)),
        lambda x: x.clone().masked_fill_(x > 0, 3.0),
        lambda x: x.max(1),
        lambda x: x.argsort(1),
        lambda x: torch.cat([x, x], 1).softmax(-1),
        lambda x: torch.where(x > 0, x, -0.0).sum(0, keepdim=True),
    ],
)
def test_results_are_those_of_the_cpu(call: Callable[[torch.Tensor], object]) -> None:
    here = data()
    there = here.to("neuron")
    wanted, found = call(here), call(there)
    assert on_device_counts() and provenance() == {}
    for one, two in zip(*((tree if isinstance(tree, tuple) else (tree,)) for tree in (found, wanted)), strict=True):
        assert (one.dtype, one.stride(), one.device.type) == (two.dtype, two.stride(), "neuron")
        torch.testing.assert_close(one.cpu(), two)
    torch.testing.assert_close(there.cpu(), here)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2)),
        lambda: nn.Sequential(nn.Flatten(2), nn.LayerNorm(64), nn.Linear(64, 8), nn.GELU()),
    ],
)
def test_gradients_are_those_of_the_cpu(make: Callable[[], nn.Module]) -> None:
    here, x = make(), data(2, 3, 8, 8)
    there = copy.deepcopy(here).to("neuron")
    weight = torch.randn_like(here(x))
    here.load_state_dict({name: value.cpu() for name, value in there.state_dict().items()})
    for model, device in ((here, "cpu"), (there, "neuron")):
        (model(x.to(device)) * weight.to(device)).sum().backward()
    for one, two in zip(there.parameters(), here.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad.cpu(), two.grad, rtol=1e-4, atol=1e-4)
    for one, two in zip(there.buffers(), here.buffers(), strict=True):
        torch.testing.assert_close(one.cpu(), two)
    assert set(provenance()) <= {"aten::add.out"}, "the int64 counter of batches"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, {"bias": False}),
        (nn.GRU, {"num_layers": 2}),
        (nn.GRU, {"bias": False}),
    ],
)
def test_recurrent_layers_and_their_gradients_are_those_of_the_cpu(kind: type[nn.RNNBase], options: dict) -> None:
    here, x = kind(4, 5, **options), data(3, 2, 4)
    there = copy.deepcopy(here).to("neuron")
    forget()
    inputs = [x.clone().requires_grad_(), x.to("neuron").requires_grad_()]
    (wanted, states), (found, others) = here(inputs[0]), there(inputs[1])
    for one, two in (
        (found, wanted),
        *zip(*(s if isinstance(s, tuple) else (s,) for s in (others, states)), strict=True),
    ):
        torch.testing.assert_close(one.cpu(), two)
    for result in (wanted, found):
        result.square().sum().backward()
    torch.testing.assert_close(inputs[1].grad.cpu(), inputs[0].grad)
    for one, two in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), two.grad)
    assert provenance() == {}


def test_elements_are_selected_by_a_mask_on_the_cpu() -> None:
    here = data()
    there = here.to("neuron")
    assert there[there > 0].cpu().equal(here[here > 0])
    assert reasons()["aten::index.Tensor_out"] == "the size of its result depends on values"


def test_what_has_no_program_runs_on_the_cpu_and_says_why() -> None:
    there = torch.arange(8, device="neuron")
    forget()
    assert (there + (1 << 40)).tolist() == [(1 << 40) + n for n in range(8)]
    torch.fft.fft(torch.ones(4, device="neuron"))
    torch.rand_like(torch.ones(4, device="neuron"))
    why = reasons()
    assert "torch.int64" in why["aten::add.out"]
    assert "graph.dtype" in why["aten::_fft_r2c"] or "complex" in why["aten::_fft_r2c"]
    assert provenance()["aten::add.out"] == 1
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(3, device="neuron") + torch.ones(4, device="neuron")


def test_numbers_that_change_make_few_programs() -> None:
    x = data().to("neuron")
    for step in range(12):
        torch.testing.assert_close((x * (0.5 + step)).cpu(), x.cpu() * (0.5 + step))
    assert programs() == {"aten::mul.Tensor": 8}
    assert provenance() == {"aten::mul.out": 4}
    assert "differ in numbers only" in reasons()["aten::mul.out"]


def test_operators_can_be_left_to_the_host() -> None:
    eager_on("host")
    x = data().to("neuron")
    x + 1
    assert (provenance(), on_device_counts(), programs()) == ({"aten::add.out": 1}, {}, {})
    with pytest.raises(LaunchError) as caught:
        eager_on("moon")
    assert caught.value.code == "torch.eager"
    assert caught.value.location.frame is not None
