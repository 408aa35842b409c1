"""What packages around PyTorch ask of a device: memory, streams, events, pinned memory, seeds; and backward passes."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from nki.core.dtypes import as_dtype
from nki.core.errors import ExecutionError, LaunchError
from nki.frontend.host import torch_memory
from nki.interop.torch import enable_device
from nki.target.load import load_target
from tests.interop.torch.kernels import product

enable_device()

neuron = torch.get_device_module("neuron")


def test_memory_is_counted_until_the_last_view_is_gone() -> None:
    gc.collect()
    neuron.reset_peak_memory_stats()
    before = neuron.memory_allocated()
    x = torch.ones(1000, device="neuron")
    view = x.view(10, 100)
    del x
    assert neuron.memory_allocated() - before == 4000
    assert neuron.memory_reserved() == neuron.memory_allocated() == torch.accelerator.memory_allocated()
    y = torch.ones(500, device="neuron")
    del view, y
    assert neuron.memory_allocated() == before
    assert neuron.max_memory_allocated() - before == 6000
    neuron.reset_peak_memory_stats()
    assert neuron.max_memory_allocated() == before
    found = neuron.memory_stats()
    assert found["allocated_bytes.all.current"] == before
    assert found["reserved_bytes.all.peak"] == before
    assert "allocated_bytes.all.freed" in neuron.memory_summary()


def test_the_device_has_the_memory_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    total = load_target("trn2").hbm.bytes
    assert neuron.get_device_properties(0).total_memory == total
    assert neuron.get_device_name() == "simulated trn2"
    x = torch.ones(100, device="neuron")
    assert neuron.mem_get_info() == (total - neuron.memory_allocated(), total)
    assert torch.accelerator.get_memory_info() == neuron.mem_get_info()
    assert x.numel() == 100


def test_streams_and_events() -> None:
    first, other = neuron.current_stream(), neuron.Stream()
    begin, end = (neuron.Event(enable_timing=True) for _ in range(2))
    with neuron.stream(other):
        assert neuron.current_stream() is other
        begin.record()
        x = torch.ones(3, device="neuron") + 1
        x.record_stream(other)
        other.wait_stream(first)
        end = other.record_event(end)
    assert neuron.current_stream() is first is neuron.default_stream()
    first.wait_event(end)
    end.synchronize()
    assert end.query() is first.query() is True
    assert begin.elapsed_time(end) > 0
    with pytest.raises(ExecutionError, match=r"torch\.event"):
        begin.elapsed_time(neuron.Event())
    neuron.synchronize()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()


def test_pinned_memory() -> None:
    x = torch.arange(6.0).view(2, 3).t()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert not x.is_pinned()
    assert torch.equal(pinned, x)
    assert pinned.data_ptr() != x.data_ptr()
    batches = list(DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, pin_memory=True))
    assert [batch.tolist() for (batch,) in batches] == [[0, 1], [2, 3], [4, 5]]
    assert all(batch.is_pinned() for (batch,) in batches)
    assert batches[0][0].to("neuron", non_blocking=True).sum().item() == 1


def test_seeds() -> None:
    neuron.manual_seed_all(7)
    first, states = torch.rand(3, device="neuron").cpu(), neuron.get_rng_state_all()
    second = torch.rand(3)
    neuron.set_rng_state_all(states)
    assert torch.equal(torch.rand(3), second)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3), first)
    assert neuron.initial_seed() == 7


@pytest.mark.parametrize("device", [1, "neuron:3", "cpu", "nowhere"])
def test_another_device_is_refused(device: object) -> None:
    for function in (neuron.set_device, neuron.synchronize, neuron.memory_allocated, neuron.get_device_name):
        with pytest.raises(LaunchError, match=r"torch\.device-index"):
            function(device)


def test_a_backward_in_another_thread() -> None:
    found: list[torch.Tensor] = []

    def work() -> None:
        x = torch.ones(3, device="neuron", requires_grad=True)
        (x * 2).sum().backward()
        found.append(x.grad.cpu())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].tolist() == [2, 2, 2]


@pytest.mark.slow
def test_a_backward_on_the_cpu_before_the_device_is_enabled() -> None:
    """PyTorch counts its devices at the first backward of a process."""
    script = (
        "import torch; x = torch.ones(2, requires_grad=True); x.sum().backward()\n"
        "from nki.interop.torch import enable_device; enable_device()\n"
        "y = torch.ones(2, device='neuron', requires_grad=True); (y * 3).sum().backward(); print(y.grad.tolist())"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "[3.0, 3.0]", found.stderr


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "float16", "int32", "int8", "uint8", "bool"])
def test_a_look_at_a_tensor_leaves_its_storage_resizable(name: str) -> None:
    tensor = (torch.arange(6).view(2, 3) > 2).to(getattr(torch, name)).t()
    array = torch_memory(tensor, as_dtype(name))
    assert array.dtype == as_dtype(name).numpy
    assert array.astype(float).tolist() == tensor.to(torch.float32).tolist()
    array[0, 0] = 1
    assert tensor[0, 0] == 1
    del array
    tensor.untyped_storage().resize_(0)


def test_kernels_and_programs_leave_storages_resizable() -> None:
    """FSDP gives the memory of parameters back by resizing their storages to nothing."""
    a, b = torch.ones(4, 8), torch.ones(4, 8)
    assert torch.equal(product(a, b), a)
    assert torch.equal(torch.compile(lambda x, y: x + y, backend="neuron")(a, b), a * 2)
    for tensor in (a, b):
        tensor.untyped_storage().resize_(0)
        tensor.untyped_storage().resize_(128)
    assert torch.equal(product(a.fill_(2), b.fill_(3)), torch.full((4, 8), 6.0))
