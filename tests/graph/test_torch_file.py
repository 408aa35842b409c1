"""Programs that ``torch.export.save`` wrote: constants, buffers that change, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nki.core.errors import UsageError
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.torch_file import read_exported

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Cached(nn.Module):
    """Keeps what it has seen, and counts."""

    kept: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(8, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.tensor(3), persistent=False)
        self.into = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.kept.index_copy_(0, at, self.into(x) * self.scale)
        self.count.add_(1)
        return nn.functional.scaled_dot_product_attention(x[None], self.kept[None], self.kept[None])[0]


def saved(model: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path) -> Path:
    torch.export.save(torch.export.export(model, inputs), folder / "model.pt2")
    return folder / "model.pt2"


def run(model: Executable, **given: torch.Tensor) -> list[np.ndarray]:
    arrays = {name: tensor.detach().numpy() for name, tensor in given.items()}
    return model.run([arrays[port.name].astype(port.dtype.numpy) for port in model.arguments])


def test_buffers_that_change_are_arguments_and_results(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x, at = Cached().eval(), torch.randn(2, 4), torch.tensor([3, 5])
    made = compile_module(read_exported(saved(model, (x, at), tmp_path)))
    assert [port.name for port in made.arguments] == ["x", "at", "kept", "count"]
    assert made.aliases == {0: 2, 1: 3}
    kept, count = torch.zeros(8, 4), torch.tensor(0)
    for _ in range(2):
        new_kept, new_count, found = run(made, x=x, at=at, kept=kept, count=count)
        wanted = model(x, at)
        np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(new_kept, model.kept.detach().numpy(), rtol=1e-5, atol=1e-6)
        assert new_count == model.count
        kept, count, x, at = torch.from_numpy(new_kept), torch.from_numpy(new_count), x + 1, at - 2


def test_small_floats(tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3).to(torch.bfloat16), torch.randn(2, 4).to(torch.bfloat16)
    made = compile_module(read_exported(saved(model, (x,), tmp_path)))
    (found,) = made.run([x.view(torch.uint16).numpy().view(made.arguments[0].dtype.numpy)])
    np.testing.assert_allclose(found.astype(np.float32), model(x).float().detach().numpy(), rtol=1e-2, atol=1e-2)


class Large(nn.Module):
    """Has a number that needs 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("number", torch.tensor([1 << 40]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.number


def test_numbers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="number has values from 1099511627776") as caught:
        read_exported(saved(Large(), (torch.ones(1),), tmp_path))
    assert caught.value.code == "cc.model"
