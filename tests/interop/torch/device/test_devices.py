"""Several devices in one process: tensors on each of them, the current one, and what must not be mixed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nki.core.errors import LaunchError, NkiError, UsageError
from nki.interop.torch import devices, enable_device
from tests.interop.torch.kernels import matrix, product

enable_device()

neuron = torch.get_device_module("neuron")

pytestmark = pytest.mark.filterwarnings(r"ignore:\[torch.host-operator:nki.report.NkiWarning")


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "4")
    devices.count.cache_clear()
    yield
    devices.choose(0)
    monkeypatch.undo()
    devices.count.cache_clear()


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "3"}, 3),
        ({"NEURON_RT_NUM_CORES": "0", "LOCAL_WORLD_SIZE": "3"}, 3),
        ({"NEURON_RT_NUM_CORES": "2", "LOCAL_WORLD_SIZE": "3"}, 2),
        ({"NEURON_RT_VISIBLE_CORES": "4-7", "NEURON_RT_NUM_CORES": "2"}, 4),
        ({"NEURON_RT_VISIBLE_CORES": "5"}, 1),
        ({"NEURON_RT_VISIBLE_CORES": "0, 2-3,3"}, 3),
        ({"NEURON_RT_VISIBLE_CORES": "3-1"}, None),
        ({"NEURON_RT_VISIBLE_CORES": "all"}, None),
        ({"NEURON_RT_NUM_CORES": "-1"}, None),
    ],
)
def test_how_many_there_are(environment: dict[str, str], count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if count is None:
        with pytest.raises(UsageError, match=r"option\.value"):
            devices.count.__wrapped__()
    else:
        assert devices.count.__wrapped__() == count


@pytest.mark.usefixtures("four")
def test_results_are_where_the_tensors_are() -> None:
    assert neuron.device_count() == torch.accelerator.device_count() == 4
    a = matrix().to("neuron:1")
    place = torch.device("neuron:1")
    for found in (a + a, a.double().sum(), a.t()[1:], a.to(torch.bfloat16), product(a, a), torch.arange(3, device=1)):
        assert found.device == place
    weight = matrix().to("neuron:1").requires_grad_()
    (weight.to("neuron:3") * 2).sum().backward()
    assert weight.grad is not None and weight.grad.device == place and weight.grad.unique().tolist() == [2]
    target = torch.zeros(a.shape, device="neuron:2")
    assert torch.equal(target.copy_(a).cpu(), matrix())


@pytest.mark.usefixtures("four")
def test_the_current_device() -> None:
    stays = torch.ones(1, device="neuron")
    neuron.set_device(2)
    assert neuron.current_device() == torch.accelerator.current_device_index() == 2
    weight = torch.ones(3, requires_grad=True)
    made = (
        torch.ones(3, device="neuron"),
        weight.to("neuron"),
        torch.tensor([1.0], device="neuron"),
        torch.ones(3).neuron(),
        torch.nn.Linear(2, 2).to("neuron").weight,
        stays.to("neuron"),
    )
    assert {tensor.device for tensor in made} == {torch.device("neuron:2")}
    assert neuron.current_stream().device == neuron.Event().device == torch.device("neuron:2")
    made[1].sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1, 1, 1]
    with neuron.device("neuron:3"), torch.accelerator.device_index(1):
        assert torch.ones(1, device="neuron").device.index == 1
    assert neuron.current_device() == 2 and stays.device.index == (stays + 1).device.index == 0


@pytest.mark.usefixtures("four")
def test_memory_of_each_device() -> None:
    before = [neuron.memory_allocated(index) for index in range(4)]
    a, b = torch.ones(100, device="neuron:1"), torch.ones(50, device="neuron:3")
    assert [neuron.memory_allocated(index) - before[index] for index in range(4)] == [0, 400, 0, 200]
    assert torch.accelerator.memory_allocated("neuron:1") == neuron.memory_stats(1)["allocated_bytes.all.current"]
    del a, b
    assert [neuron.memory_allocated(index) for index in range(4)] == before


@pytest.mark.usefixtures("four")
def test_devices_are_not_mixed() -> None:
    a, b = matrix().to("neuron:1"), matrix().to("neuron:2")
    with pytest.raises(RuntimeError, match="neuron:1 and neuron:2"):
        a + b
    for call in (lambda: a @ b.t(), lambda: product(a, b)):
        with pytest.raises(NkiError, match=r"torch\.mixed-devices.*neuron:1 and neuron:2"):
            call()
    for call in (lambda: torch.ones(1, device="neuron:4"), lambda: neuron.set_device(4), lambda: a.to("neuron:4")):
        with pytest.raises(LaunchError, match=r"torch\.device-index"):
            call()
    assert (a * torch.tensor(2.0))[torch.tensor([1, 3])].device.index == 1, "numbers and indices may be on the CPU"
