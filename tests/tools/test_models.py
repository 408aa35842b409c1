"""`nki cc`, `nki run`, `nki inspect`, `nki profile` and `nki ls` on models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nki.target.load import load_target
from tests.graph.test_executable import MODEL
from tests.tools.running import nki, nki_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    (made / "affine.mlir").write_text(MODEL)
    draw = np.random.default_rng(1)
    np.save(made / "x.npy", draw.random((200, 32), np.float32))
    np.save(made / "w.npy", draw.random(32, np.float32))
    nki("cc", str(made / "affine.mlir"), "--target", "trn2", "--dump-ir", str(made / "ir"))
    return made


def _expected(folder: Path) -> np.ndarray:
    return np.load(folder / "x.npy") * np.load(folder / "w.npy") + np.arange(32, dtype=np.float32)


def test_a_model_runs_from_its_file(folder: Path, tmp_path: Path) -> None:
    inputs = f"{folder / 'x.npy'},{folder / 'w.npy'}"
    told = nki_json("run", str(folder / "affine.neff"), "--inputs", inputs, "-o", str(tmp_path / "out"))
    assert told["model"] == "affine" and [result["dtype"] for result in told["results"]] == ["float32", "bool"]
    first, second = (np.load(tmp_path / "out" / f"{result['name']}.npy") for result in told["results"])
    assert np.array_equal(first, _expected(folder))
    assert np.array_equal(second, _expected(folder) > np.load(folder / "x.npy"))


def test_two_cores_run_a_model(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.neff"
    told = nki_json("cc", str(folder / "affine.mlir"), "--target", "trn2", "--lnc", "2", "-o", str(file))
    assert told["cores"] == 2 and isinstance(told["meetings"], int)
    nki("run", str(file), "--inputs", f"{folder / 'x.npy'},{folder / 'w.npy'}", "-o", str(tmp_path / "out"))
    made = [np.load(each) for each in sorted((tmp_path / "out").glob("*.npy"))]
    assert any(np.array_equal(each, _expected(folder)) for each in made)
    refused = nki("cc", str(folder / "affine.mlir"), "--target", "trn1", "--lnc", "2", "-o", str(file), code=1)
    assert "launch.lnc" in refused.stderr


def test_kernels_for_parts_of_a_model_can_be_switched_off(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    q, k = (jax.ShapeDtypeStruct((1, 256, heads, 64), np.float32) for heads in (2, 1))
    text = jax.jit(jax.nn.dot_product_attention).lower(q, k, k).as_text()
    (tmp_path / "attention.mlir").write_text(text)
    words = ["cc", str(tmp_path / "attention.mlir"), "--target", "trn2", "-o"]
    fast = nki_json(*words, str(tmp_path / "fast.neff"))
    assert [each["pattern"] for each in fast["replaced"]] == ["attention"]
    plain = nki_json(*words, str(tmp_path / "plain.neff"), "--no-patterns")
    assert plain["replaced"] == [] and sum(plain["kernels"].values()) > sum(fast["kernels"].values())


def test_one_file_traces_host_and_device(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    words = ["--arg", "x=200x32:float32:zeros", "--arg", "w=32:float32:ones", "--trace", str(tmp_path / "t.pftrace")]
    nki("run", str(folder / "affine.neff"), *words)
    data = (tmp_path / "t.pftrace").read_bytes()
    assert b"call affine" in data and b"affine on trn2" in data
    (tmp_path / "kernel.py").write_text("def kernel(a):\n    return a\n")
    nki("run", str(tmp_path / "kernel.py"), *words, code=2)


def test_arrays_by_name(folder: Path) -> None:
    file = str(folder / "affine.neff")
    told = nki_json("run", file, "--arg", "x=200x32:float32:zeros", "--arg", "w=32:float32:ones")
    assert told["results"][0]["max"] == 31.0
    nki("run", file, "--arg", "x=200x32:float32:zeros", code=2)
    nki("run", file, "--arg", "x=200x31:float32:zeros", "--arg", "w=32:float32:ones", code=2)
    nki("run", file, "--inputs", str(folder / "x.npy"), code=2)


def test_every_stage_is_written_and_can_be_resumed(folder: Path, tmp_path: Path) -> None:
    stages = sorted(file.name for file in (folder / "ir").iterdir())
    assert stages[0] == "00-imported.mlir" and {"linked.mlir", "model.neff", "plan.json"} <= set(stages)
    fused = next((folder / "ir").glob("*-fused.mlir"))
    told = nki_json("cc", str(fused), "--resume", "--target", "trn2", "-o", str(tmp_path / "again.neff"))
    assert told["output"].endswith("again.neff") and told["kernels"] == {"pointwise": 1}


def test_inspect_shows_names_and_weights(folder: Path) -> None:
    told = nki_json("inspect", str(folder / "affine.neff"))["model"]
    assert [port["name"] for port in told["arguments"]] == ["x", "w"]
    assert told["constant_bytes"] == 128 and told["report"]["target"] == "trn2"
    shown = nki("inspect", str(folder / "affine.neff")).stdout
    assert "x: float32[200, 32]" in shown and "1 with 128 bytes" in shown


def test_profile_takes_a_model(folder: Path) -> None:
    told = nki_json("profile", str(folder / "affine.neff"))
    assert told["about"]["kernel"] == "affine" if "about" in told else told["kernel"] == "affine"


def test_ls_lists_the_devices() -> None:
    told = {each["target"]: each for each in nki_json("ls")}
    for name in ("trn1", "trn2", "trn3"):
        target = load_target(name)
        assert len(told[name]["cores"]) == target.cores_per_device
        assert told[name]["simulated"] and told[name]["hbm_bytes"] == target.hbm.bytes
    assert "simulated" in nki("ls", "--target", "trn2").stdout


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    nki("cc", str(tmp_path / "model.txt"), code=2)
    nki("cc", str(tmp_path / "model.mlir"), code=2)
    (tmp_path / "bad.mlir").write_text("module {")
    assert "graph.parse" in nki("cc", str(tmp_path / "bad.mlir"), code=1).stderr


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_an_exported_program_becomes_a_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.arange(8, dtype=torch.float32))

        def forward(self, x):
            return torch.tanh(x * self.scale)

    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    torch.export.save(torch.export.export(Scaled().eval(), (x,)), tmp_path / "scaled.pt2")
    nki("cc", str(tmp_path / "scaled.pt2"), "--target", "trn2")
    np.save(tmp_path / "x.npy", x.numpy())
    told = nki_json(
        "run", str(tmp_path / "scaled.neff"), "--inputs", str(tmp_path / "x.npy"), "-o", str(tmp_path / "o")
    )
    (result,) = told["results"]
    found = np.load(tmp_path / "o" / f"{result['name']}.npy")
    np.testing.assert_allclose(found, Scaled()(x).detach().numpy(), rtol=2e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_buffer_that_changes_is_an_argument_and_a_result(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(8))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return x - self.total

    x, counted = torch.linspace(-1, 1, 32).reshape(4, 8), Counted().eval()
    torch.export.save(torch.export.export(counted, (x,)), tmp_path / "counted.pt2")
    told = nki_json("cc", str(tmp_path / "counted.pt2"), "--target", "trn2")
    (new,) = told["states"].values()
    assert list(told["states"]) == ["total"]
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "total.npy", np.zeros(8, np.float32))
    for _ in range(3):
        inputs = f"{tmp_path / 'x.npy'},{tmp_path / 'total.npy'}"
        ran = nki_json("run", str(tmp_path / "counted.neff"), "--inputs", inputs, "-o", str(tmp_path / "o"))
        found = {result["name"]: np.load(tmp_path / "o" / f"{result['name']}.npy") for result in ran["results"]}
        expected = counted(x).numpy()
        np.save(tmp_path / "total.npy", found.pop(new))
        np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.load(tmp_path / "total.npy"), counted.total.numpy(), rtol=1e-6)
