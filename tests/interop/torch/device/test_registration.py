"""``device="neuron"``: memory, views, kernels, models and graphs, against the same on the CPU."""

import copy
import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import backend_registration

from nki.core.errors import LaunchError, NkiError
from nki.interop.torch import enable_device, forget, provenance, wrap_nki
from nki.interop.torch.device import registration
from tests.interop.torch.kernels import assign, differentiable, duplicate, matrix, multiply, product
from tests.packaging.building import REPOSITORY, run

enable_device()

pytestmark = pytest.mark.filterwarnings(r"ignore:\[torch.host-operator:nki.report.NkiWarning")


def test_tensors_go_there_and_come_back() -> None:
    a = matrix()
    there = a.to("neuron")
    assert there.device == torch.device("neuron", 0)
    assert there.is_neuron
    assert torch.equal(there.cpu(), a)
    assert torch.equal(a.neuron().to("cpu", non_blocking=True), a)
    assert there.to(torch.bfloat16).device.type == "neuron"
    assert there.to("meta").is_meta
    there.zero_()
    assert a.any(), "the copy has memory of its own"


def test_random_numbers_are_those_of_the_cpu() -> None:
    torch.manual_seed(3)
    there = torch.randn(128, device="neuron")
    torch.manual_seed(3)
    assert torch.equal(there.cpu(), torch.randn(128))


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.arange(7, device=device),
        lambda device: torch.full((2, 3), 0.5, dtype=torch.bfloat16, device=device),
        lambda device: torch.tensor([[1, 2], [3, 4]], device=device),
        lambda device: torch.eye(3, device=device)[1:].t(),
        lambda device: torch.empty(0, 4, device=device),
        lambda device: torch.linspace(0, 1, 5, device=device).reshape(5, 1).expand(5, 3),
        lambda device: torch.zeros(2, dtype=torch.complex64, device=device).conj(),
        lambda device: torch.ones(4, device=device).view(torch.int32),
        lambda device: torch.tril(torch.ones(4, 4, device=device)).nonzero(),
        lambda device: torch.add(torch.ones(3, device=device), 1, out=torch.empty(0, device=device)),
        lambda device: torch.empty(2, device=device).fill_(3).resize_(2, 1),
        lambda device: torch.fft.fft(torch.arange(8.0, device=device)),
        lambda device: torch.cat([torch.ones(2, device=device), torch.zeros(1, device=device)]),
        lambda device: torch.vmap(lambda row: row.cumsum(0))(torch.ones(3, 3, device=device)),
        lambda device: torch.nn.functional.mse_loss(*torch.eye(2, dtype=torch.float64, device=device)),
    ],
)
def test_operators_give_what_they_give_on_the_cpu(make: Callable[[str], torch.Tensor]) -> None:
    there, here = make("neuron"), make("cpu")
    assert there.device.type == "neuron"
    assert (there.shape, there.dtype, there.stride()) == (here.shape, here.dtype, here.stride())
    assert torch.equal(there.cpu(), here)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")  # as on the CPU
def test_what_an_operator_writes_to_becomes_as_large_as_its_result() -> None:
    x, out = torch.ones(3, dtype=torch.float64, device="neuron"), torch.zeros(2, dtype=torch.float64, device="neuron")
    assert torch.add(x, 1, out=out) is out and out.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, 1, out=torch.zeros(3, dtype=torch.int64, device="neuron"))


def test_views_share_memory_and_storage() -> None:
    base = torch.zeros(4, 6, device="neuron")
    for view in (
        base[1:],
        base.t(),
        base.view(24),
        base.reshape(3, 8),
        base.unsqueeze(0),
        base.split(2)[1],
        base[:, 0],
    ):
        assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
    base.t()[2].fill_(7)
    assert torch.equal(base.cpu()[:, 2], torch.full((4,), 7.0))
    base.view(-1)[0] = 5
    assert base[0, 0].item() == 5
    assert "device='neuron:0'" in repr(base)


def test_resizing_keeps_elements_and_memory_that_is_large_enough() -> None:
    a = torch.arange(6, device="neuron")
    view = a[:]
    view.resize_(2, 2).fill_(9)
    assert a.tolist() == [9, 9, 9, 9, 4, 5]
    assert a.resize_(8)[:6].tolist() == [9, 9, 9, 9, 4, 5]


def test_it_is_the_accelerator() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    torch.neuron.synchronize()
    assert torch.neuron.device_count() == 1
    with torch.neuron.device(0):
        assert torch.neuron.current_device() == 0
    with pytest.raises(ValueError, match="there is one simulated device"):
        torch.neuron.set_device("neuron:1")


def test_kernels_and_operators_run_there() -> None:
    a, b = matrix(), matrix(seed=1)
    for function in (product, multiply, wrap_nki(product)[2]):
        found = function(a.to("neuron"), b.to("neuron"))
        assert found.device.type == "neuron"
        assert torch.equal(found.cpu(), a * b)
    target = torch.zeros(128, 64, device="neuron")
    assign(target[:, 32:], a.to("neuron"))
    assert torch.equal(target.cpu(), torch.cat([torch.zeros(128, 32), a], 1))
    torch.library.opcheck(duplicate, (a.to("neuron"),), test_utils=("test_schema", "test_faketensor"))


def trained(device: str, backend: str | None) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.LayerNorm(144), torch.nn.GELU(), torch.nn.Linear(144, 8)
    ).to(device)
    data, weight = torch.randn(128, 1, 8, 8).to(device), torch.randn(128, 8).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def loss_of(data: torch.Tensor) -> torch.Tensor:
        return differentiable(model(data), weight).pow(2).mean()

    call = torch.compile(loss_of, fullgraph=True, backend=backend) if backend else loss_of
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = call(data)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_model_trains_there() -> None:
    there, here = trained("neuron", None), trained("cpu", None)
    torch.testing.assert_close(torch.tensor(there), torch.tensor(here))
    assert there[-1] < there[0]


def test_a_compiled_model_trains_there() -> None:
    torch.compiler.reset()
    there, here = trained("neuron", "aot_eager"), trained("cpu", None)
    torch.testing.assert_close(torch.tensor(there), torch.tensor(here))


def test_gradients_cross_to_the_device_and_back() -> None:
    def across(a: torch.Tensor) -> torch.Tensor:
        weight = torch.ones(128, 32, device="neuron") * 3
        return differentiable(a.to("neuron"), weight).cpu().sum()

    torch.compiler.reset()
    for function in (across, torch.compile(across, fullgraph=True, backend="aot_eager")):
        a = matrix().requires_grad_()
        function(a).backward()
        assert a.grad is not None
        assert torch.equal(a.grad, torch.full((128, 32), 3.0))


def test_models_are_copied_and_saved() -> None:
    model = torch.nn.Linear(4, 2).to("neuron")
    twin = copy.deepcopy(model)
    assert twin.weight.device.type == "neuron"
    assert twin.weight.data_ptr() != model.weight.data_ptr()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for place, type_ in ((None, "neuron"), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert loaded["weight"].device.type == type_
        assert torch.equal(loaded["weight"].cpu(), model.weight.detach().cpu())
    assert torch.UntypedStorage(8, device="neuron").nbytes() == 8


def test_what_ran_on_the_cpu_is_counted() -> None:
    a = matrix().to("neuron")
    forget()
    product(a, a)
    assert provenance() == {}
    a.view(-1)[3:]
    assert provenance() == {}
    (a.double() @ a.double().t()).exp_()
    assert provenance() == {"aten::exp.out": 1, "aten::mm.out": 1}
    assert torch.neuron.provenance() == provenance()


def test_autocast_lowers_products() -> None:
    layer, data = torch.nn.Linear(32, 8).to("neuron"), matrix().to("neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert layer(data).dtype == torch.bfloat16
        assert (data + data).dtype == torch.float32
        assert multiply(data, data).dtype == torch.float32
    assert layer(data).dtype == torch.float32


def refused(call: Callable[[], Any]) -> NkiError:
    with pytest.raises(NkiError) as caught:
        call()
    assert caught.value.location.frame is not None
    assert caught.value.location.frame.file == __file__
    return caught.value


def test_what_is_refused() -> None:
    a = matrix().to("neuron")
    assert refused(lambda: torch.zeros(3, device="neuron:1")).code == "torch.device-index"
    assert refused(lambda: torch.zeros(3).to("neuron:1")).code == "torch.device-index"
    assert refused(lambda: product(a, matrix())).code == "torch.mixed-devices"
    assert refused(lambda: product(a.requires_grad_(), a)).code == "argument.requires-grad"
    with pytest.raises(RuntimeError, match="same device"):
        a + matrix()
    assert refused(lambda: a.detach() @ matrix().t()).code == "torch.mixed-devices"
    with pytest.raises(TypeError, match="convert neuron:0 device type tensor to numpy"):
        a.detach().numpy()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_is_refused_there_and_works_on_the_cpu() -> None:
    torch.compiler.reset()
    run = torch.compile(lambda a: product(a, a) + 1)
    with pytest.raises(Exception, match=r"error\[torch\.inductor\]"):
        run(matrix().to("neuron"))
    torch.testing.assert_close(run(matrix()), matrix() ** 2 + 1)


TAKEN = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("other")
import nki.interop.torch as interop
try:
    interop.enable_device()
except ValueError as error:
    print(error.code)
"""


def test_a_pytorch_without_such_devices_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_LIBRARIES", [])  # as if the device was not enabled yet
    monkeypatch.delattr(backend_registration, "_setup_privateuseone_for_python_backend")
    with pytest.raises(LaunchError, match=r"torch\.device-missing"):
        enable_device()


@pytest.mark.slow
def test_another_device_is_left_alone() -> None:
    assert run(sys.executable, "-c", TAKEN, cwd=REPOSITORY).strip() == "torch.device-taken"
