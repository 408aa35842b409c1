"""``import torch`` alone: the device and the backend are there, and the package is loaded when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import nki_torch_autoload
from nki.interop.torch import enable_device
from tests.packaging.building import REPOSITORY

ALONE = """
import sys
import torch
import torch.distributed as dist

def loaded():
    return {name for name in ("nki", "jax", "torch._dynamo") if name in sys.modules}

assert torch.accelerator.current_accelerator().type == "neuron" and torch.accelerator.is_available()
assert dist.is_backend_available("neuron") and not torch.neuron.is_initialized()
torch.manual_seed(3)
assert not loaded(), loaded()
x = torch.tensor([1.0, 2.0]).to("neuron")
assert loaded() == {"nki", "torch._dynamo"}, loaded()
assert torch.accelerator.memory_allocated() == 8 and torch.ones(2).pin_memory().is_pinned()
dist.init_process_group("neuron", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(x)
print((x * 2).tolist())
dist.destroy_process_group()
"""


def test_import_torch_alone(tmp_path: Path) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "autoload-0.dist-info"
    installed.mkdir()
    entries = project["entry-points"]["torch.backends"]
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[torch.backends]", *lines]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE], env=environment, capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "[2.0, 4.0]", found.stderr[-2000:]


def test_import_torch_goes_on_whatever_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    enable_device()
    here = torch.get_device_module("neuron")
    nki_torch_autoload.load()  # the device is there already
    assert torch.get_device_module("neuron") is here

    def broken() -> bool:
        raise OSError("no such file")

    monkeypatch.setattr(nki_torch_autoload, "_has_room", broken)
    with pytest.warns(UserWarning, match="neuron is not loaded by PyTorch: OSError"):
        nki_torch_autoload.load()
    with pytest.warns() as told:  # where warnings are errors, as in these tests
        nki_torch_autoload.load()
    assert len(told) == 1
