"""Programs that ``torch.export.save`` wrote: constants, buffers that change, and what is refused."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nki.core.errors import UsageError
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.torch.exported_program import read_exported

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


class Leaves:
    """A file with this in it makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


def _pickled(mark: Path) -> bytes:
    held = io.BytesIO()
    torch.save(Leaves(mark), held)
    return held.getvalue()


def _everywhere(data: bytes, old: str, new: str) -> bytes:
    assert old.encode() in data
    return data.replace(old.encode(), new.encode())


def _bomb(data: bytes) -> bytes:
    """A tensor without bytes that has a shape all the same."""
    read = json.loads(data)
    read["config"]["weight"]["tensor_meta"]["sizes"][0]["as_int"] = 1 << 40
    return json.dumps(read).encode()


_WEIGHTS, _MODEL = "data/weights/model_weights_config.json", "models/model.json"
_LINEAR = "torch.ops.aten.linear.default"
HOSTILE: dict[str, tuple[dict[str, Callable[[bytes, Path], bytes]], str, str]] = {
    "a pickled weight": (
        {
            _WEIGHTS: lambda data, mark: _everywhere(data, '"use_pickle": false', '"use_pickle": true'),
            "data/weights/weight_0": lambda data, mark: _pickled(mark),
        },
        "cc.pickle", "'weight' is pickled",
    ),
    "a pickled object among the constants": (
        {"data/constants/opaque_obj_0": lambda data, mark: _pickled(mark)}, "cc.pickle", "constants/opaque_obj_0",
    ),
    "weights of the oldest form": (
        {"data/weights/model.pt": lambda data, mark: _pickled(mark)}, "cc.pickle", "weights/model.pt",
    ),
    "a library": ({"data/aotinductor/model/a.so": lambda data, mark: b"ELF"}, "cc.pickle", "aotinductor"),
    "another model": ({"models/other.json": lambda data, mark: data}, "cc.pickle", "models/other.json"),
    "a function of PyTorch in place of an operator": (
        {_MODEL: lambda data, mark: _everywhere(data, _LINEAR, "torch.os.mkdir")}, "cc.pickle", "'torch.os.mkdir'",
    ),
    "a method of the table of operators": (
        {_MODEL: lambda data, mark: _everywhere(data, _LINEAR, "torch.ops.load_library.__call__")}, "cc.pickle",
        "load_library",
    ),
    "a function of Python": (
        {_MODEL: lambda data, mark: _everywhere(data, _LINEAR, "_operator.methodcaller")}, "cc.pickle", "methodcaller",
    ),
    "an operator that nobody registered": (
        {_MODEL: lambda data, mark: _everywhere(data, _LINEAR, "torch.ops.mine.linear.default")}, "cc.model",
        "which nobody has registered",
    ),
    "the text of a size": (
        {
            _MODEL: lambda data, mark: _everywhere(
                data, '"sizes": [{"as_int": 2}', '"sizes": [{"as_expr": {"expr_str": "print(1)", "hint": null}}'
            )
        },
        "cc.model", "a size is 'print(1)'",
    ),
    "a class in a tree of arguments": (
        {_MODEL: lambda data, mark: _everywhere(data, "builtins.tuple", "collections.defaultdict")}, "cc.model",
        "collections.defaultdict",
    ),
    "a member of a class in a tree of arguments": (
        {
            _MODEL: lambda data, mark: _everywhere(
                data, r'\"builtins.dict\", \"context\": \"[]\"',
                r'\"builtins.dict\", \"context\": \"[{\\\"\\\\u005f_enum__\\\": 1}]\"',
            )
        },
        "cc.pickle", "a member of a class",
    ),
    "a tensor that is not there": (
        {_WEIGHTS: lambda data, mark: _bomb(data), "data/weights/weight_0": lambda data, mark: b""}, "cc.model",
        "has no bytes",
    ),
    "no archive": ({_MODEL: lambda data, mark: b"["}, "cc.model", "cannot be read: JSONDecodeError"),
    "deep nesting": ({_MODEL: lambda data, mark: b"[" * 100_000}, "cc.model", "cannot be read: RecursionError"),
}  # fmt: skip


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(nn.Linear(4, 3), (torch.ones(2, 4),), tmp_path_factory.mktemp("linear"))


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_in_a_file_is_executed(name: str, linear: Path, tmp_path: Path) -> None:
    changes, code, says = HOSTILE[name]
    mark, evil = tmp_path / "executed", tmp_path / "evil.pt2"
    with zipfile.ZipFile(linear) as source, zipfile.ZipFile(evil, "w") as target:
        parts = {member.filename: source.read(member) for member in source.infolist()}
        for place, change in changes.items():
            name = f"model/{place}"
            parts[name] = change(parts.get(name, b""), mark)
        for member, data in parts.items():
            target.writestr(member, data)
    with pytest.raises(UsageError) as caught:
        read_exported(evil)
    assert (caught.value.code, says in str(caught.value), mark.exists()) == (code, True, False), str(caught.value)


def test_inputs_that_come_with_a_model_are_not_unpickled(linear: Path, tmp_path: Path) -> None:
    mark, evil = tmp_path / "executed", tmp_path / "evil.pt2"
    with zipfile.ZipFile(linear) as source, zipfile.ZipFile(evil, "w") as target:
        for member in source.infolist():
            pickled = member.filename.endswith("sample_inputs/model.pt")
            target.writestr(member.filename, _pickled(mark) if pickled else source.read(member))
    assert compile_module(read_exported(evil)).arguments and not mark.exists()


class Steps(nn.Module):
    """Layers that write to their caches at one place, which each of them moves on."""

    def forward(self, x: torch.Tensor, place: torch.Tensor, caches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = []
        for cache in caches:
            cache = cache.clone()
            cache.index_copy_(0, place, x)
            place.add_(1)
            x = x + cache.sum(0, keepdim=True) * place
            made.append(cache)
        return x, torch.stack(made)


@pytest.mark.parametrize("donate", [False, True])
def test_layers_that_move_one_place_in_place(donate: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, place, caches = torch.randn(1, 4), torch.tensor([1]), torch.randn(3, 6, 4)
    made = compile_module(read_exported(saved(Steps(), (x, place, caches), tmp_path)))
    assert made.aliases == {0: 1}
    arrays = [x.numpy(), place.numpy().astype(np.int32), caches.numpy()]
    moved, result, kept = made.run([each.copy() for each in arrays], donate=donate)
    wanted, written = Steps()(x, place, caches)
    assert moved == place.numpy() == 4
    assert np.allclose(result, wanted, rtol=1e-5) and np.array_equal(kept[:2, :2], written[:2, :2])
