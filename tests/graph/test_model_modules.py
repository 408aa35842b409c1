"""The time of a model by module: the rows are PyTorch's modules, and all of them together are the whole time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import fx, nn

import nki as _nki
import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32
from nki.core.errors import ArtifactError, UsageError
from nki.core.origin import ModuleCall, Origin
from nki.core.source import Frame, Location
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.torch.exported_program import read_exported
from nki.graph.importers.torch.location import origin_of
from nki.graph.ir import Group, Op, TensorType, Value
from nki.graph.link.model_parts import parts_of
from nki.graph.resume import resume
from nki.graph.stablehlo.read import read
from nki.graph.stablehlo.write import write
from nki.interop.jax import compile as compile_jax
from nki.interop.torch import compiled_graphs, wrap_nki
from nki.profiling.breakdown import BY, Breakdown
from nki.profiling.build import profile_programs
from nki.profiling.record import Profile
from nki.spec.model_kernels import KernelCall
from nki.store.artifact.model_kernels import kernels_document, read_kernels
from nki.target.load import load_target
from tests.profiling.support import LOOPING, looping
from tests.tools.running import nki, nki_json

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

_WIDTH, _ROWS = 32, 128


@_nki.jit
def twice(source: Any) -> Any:
    out = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(_WIDTH, _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.query(x) @ x.transpose(-1, -2), -1)
        return self.out(weights @ x)


class Layer(nn.Module):
    """`norm` is one module that all layers share and call twice."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm(x))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = nn.LayerNorm(_WIDTH)
        self.layers = nn.ModuleList([Layer(norm), Layer(norm)])
        self.head = nn.Linear(_WIDTH, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x).tanh()


@pytest.fixture(scope="module")
def model() -> Small:
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def exported(model: Small, tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Path]:
    """A model that was exported, and the folder with its stages."""
    folder = tmp_path_factory.mktemp("exported")
    torch.export.save(torch.export.export(model, (torch.randn(_ROWS, _WIDTH),)), folder / "model.pt2")
    made = compile_module(read_exported(folder / "model.pt2"), target="trn2", dump_dir=folder, patterns=[])
    return made, folder


def classes(model: nn.Module) -> dict[str, str]:
    """What PyTorch itself calls the modules that compute something, by path, those that are shared at every place."""
    every = model.named_modules(remove_duplicate=False)
    return {path: type(each).__name__ for path, each in every if not isinstance(each, nn.ModuleList)}


def named(found: Breakdown) -> dict[str, Any]:
    return {row.name: row for row in found.rows if row.named}


def check_sums(profile: Profile) -> None:
    """However it is divided, all rows are the whole time and all bytes of the core, and no row is more than that."""
    totals = profile.about.totals
    for core in range(profile.about.cores):
        for by in BY:
            found = profile.breakdown(by, core)
            assert sum(row.self_ns for row in found.rows) == pytest.approx(totals[core]["makespan_ns"], rel=1e-9)
            for name in ("hbm_read_bytes", "hbm_write_bytes"):
                moved = sum(getattr(row, name) for row in found.rows)
                assert moved == pytest.approx(totals[core][name], rel=1e-9)
            for row in found.rows:
                assert -1e-6 <= row.self_ns <= row.total_ns + 1e-6 <= found.makespan_ns + 1e-3


def test_an_exported_model(model: Small, exported: tuple[Executable, Path]) -> None:
    profile = exported[0].profile()
    check_sums(profile)
    found = named(profile.breakdown("module"))
    wanted = {**classes(model), "layers.1.norm": "LayerNorm"}
    assert {path: row.kind for path, row in found.items()} == wanted
    assert all(row.named for row in profile.breakdown("module").rows)
    whole = found[""]
    assert whole.total_ns == pytest.approx(profile.makespan_ns)
    for path, row in found.items():
        children = [each for each in found if each and each.rpartition(".")[0] == path]
        children += [f"layers.{n}" for n in range(2)] if not path else []
        inside = sum(found[each].total_ns for each in children)
        assert row.total_ns == pytest.approx(row.self_ns + inside, abs=1e-6), path
    assert found["layers.0.norm"].kernels == 2  # it is called twice
    assert found["layers.0.mlp"].self_ns == 0.0  # it only calls others


def test_by_class_and_by_operation(model: Small, exported: tuple[Executable, Path]) -> None:
    profile = exported[0].profile()
    rows, modules = named(profile.breakdown("class")), named(profile.breakdown("module"))
    assert set(rows) == set(classes(model).values())
    for kind, row in rows.items():
        same = [each for each in modules.values() if each.kind == kind]
        assert row.self_ns == pytest.approx(sum(each.self_ns for each in same))
        assert row.total_ns == pytest.approx(sum(each.total_ns for each in same))
    operations = named(profile.breakdown("operation"))
    assert set(operations) == {
        "aten.linear", "aten.native_layer_norm", "aten.mm", "aten._softmax", "aten.gelu", "aten.add", "aten.tanh",
    }  # fmt: skip
    assert operations["aten.native_layer_norm"].self_ns == pytest.approx(rows["LayerNorm"].self_ns)
    kernels = named(profile.breakdown("kernel"))
    calls = exported[0].report.kernels
    assert sum(row.kernels for row in kernels.values()) == sum(calls.values())
    assert len(kernels) == exported[0].report.distinct + ("copy" in calls)


def test_a_compiled_function_and_its_derivative(model: Small) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (model(torch.sin(x)) * 3).sum()

    x = torch.randn(_ROWS, _WIDTH, requires_grad=True)
    torch.compile(function, backend="neuron", options={"target": "trn2"})(x).backward()
    inside = {f"model.{path}".removesuffix("."): kind for path, kind in classes(model).items()}
    for graph in compiled_graphs()[-2:]:
        profile = graph.executable.profile()
        check_sums(profile)
        rows = profile.breakdown("module").rows
        found = {row.name: row.kind for row in rows if row.named}
        assert set(found.items()) <= set(inside.items())
        assert {"model.layers.0.mlp.1", "model.layers.1.attention", "model.head"} <= set(found)
        (rest,) = [row for row in rows if not row.named]
        assert str(rest) == "(no module)" and rest.self_ns > 0.0


def test_kernels_of_the_user_and_control_flow_have_the_modules_around_them() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return wrap_nki(twice)[1](x)

    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x.sin(), (x,))

    with torch.no_grad():
        torch.compile(nn.Sequential(Twice(), Chosen()), backend="neuron", options={"target": "trn2"})(
            torch.ones(128, 8)
        )
    profile = compiled_graphs()[-1].executable.profile()
    check_sums(profile)
    found = named(profile.breakdown("module"))
    assert {path: row.kind for path, row in found.items()} == {"": "Sequential", "0": "Twice", "1": "Chosen"}
    assert found["0"].self_ns > 0.0 and found["0"].kernels == 1
    operations = named(profile.breakdown("operation"))
    assert {"aten.exp", "aten.sin", "aten.sum", "cond"} <= set(operations)
    assert operations["nki.call_1"].self_ns == found["0"].self_ns
    assert named(profile.breakdown("kernel"))["twice"].self_ns == found["0"].self_ns


def test_two_cores(exported: tuple[Executable, Path]) -> None:
    two = compile_module(read_exported(exported[1] / "model.pt2"), target="trn2", lnc=2, patterns=[])
    profile = two.profile()
    check_sums(profile)
    one = named(exported[0].profile().breakdown("module"))
    assert set(named(profile.breakdown("module", 0))) | set(named(profile.breakdown("module", 1))) == set(one)
    with pytest.raises(UsageError):
        profile.breakdown("module", 2)
    assert profile.breakdown().core == max((0, 1), key=lambda core: profile.about.totals[core]["makespan_ns"])


def test_files_keep_modules(exported: tuple[Executable, Path], tmp_path: Path) -> None:
    made, folder = exported
    wanted = made.profile().breakdown("module").to_json()
    assert Executable.load(folder / "model.neff").profile().breakdown("module").to_json() == wanted
    for stage in ("04-fused.mlir", "linked.mlir"):
        assert resume(folder / stage).profile().breakdown("module").to_json() == wanted, stage
    made.profile().save(tmp_path / "profile")
    assert Profile.load(tmp_path / "profile").breakdown("module").to_json() == wanted
    text = (folder / "linked.mlir").read_text()
    assert "nki.modules" not in text  # programs have lines alone


def test_an_edited_program_has_no_modules(exported: tuple[Executable, Path], tmp_path: Path) -> None:
    """Nobody knows which kernel an edited instruction belongs to, so none is claimed."""
    for name in ("linked.mlir", "model.neff", "setting.json"):
        (tmp_path / name).write_bytes((exported[1] / name).read_bytes())
    text = (tmp_path / "linked.mlir").read_text()
    file = next(part for part in text.split('"') if part.endswith("test_model_modules.py"))
    (tmp_path / "linked.mlir").write_text(text.replace(file, "elsewhere.py"))
    profile = resume(tmp_path / "linked.mlir").profile()
    assert "modules" not in profile.to_json() and "time by" not in profile.summary()
    with pytest.raises(UsageError) as error:
        profile.by()
    assert error.value.code == "profile.by"


def test_the_command(exported: tuple[Executable, Path], tmp_path: Path) -> None:
    file = str(exported[1] / "model.neff")
    shown = nki("profile", file, "--by", "module").stdout
    assert "layers.1.attention (Attention)" in shown and "total %" in shown
    assert "total %" not in nki("profile", file, "--by", "operation").stdout
    assert nki_json("profile", file, "--by", "class") == exported[0].profile().breakdown("class").to_json()
    assert "time by module" in nki("profile", file).stdout
    told = nki_json("profile", file)
    assert told["modules"] == exported[0].profile().breakdown("module").to_json()["rows"]
    error = nki_json("profile", "examples.py::none", "--by", "layer", code=2)["error"]
    assert "'module', 'class', 'operation', 'kernel'" in error["message"]


def test_scopes_of_jax() -> None:
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        with jax.named_scope("attention"):
            x = jax.nn.softmax(x @ w, -1)
        return jax.nn.relu(x)  # a function of its own, which both layers share

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        for number in range(2):
            with jax.named_scope(f"layer_{number}"):
                x = layer(x, w)

        def body(carried: jax.Array, _: None) -> tuple[jax.Array, None]:
            with jax.named_scope("step"):
                return carried @ w, None

        return jax.lax.scan(body, x, None, length=3)[0].sum()

    x = np.ones((128, 128), np.float32)
    profile = compile_jax(function, target="trn2").executable(x, x).profile()
    check_sums(profile)
    found = named(profile.breakdown("module"))
    assert set(found) == {"layer_0", "layer_0/attention", "layer_1", "layer_1/attention", "step"}
    assert found["layer_1"].total_ns > found["layer_1/attention"].total_ns > 0.0
    derived = compile_jax(jax.grad(function), target="trn2").executable(x, x).profile()
    check_sums(derived)
    assert {"layer_0", "layer_0/attention", "layer_1/attention", "step"} <= set(named(derived.breakdown("module")))


def test_later_trips_are_divided_as_the_first_one() -> None:
    """Loops in loops: every instruction has the time of its first run, as often as it runs."""
    kernel = _nki.jit(looping)
    kernel(*LOOPING)
    assert kernel.report is not None
    programs = kernel.report.programs
    count = sum(1 for _ in programs[0].body.walk())
    calls = tuple(KernelCall(f"k{at}", at, at + 1) for at in range(count))
    profile = profile_programs(programs, load_target(programs[0].target), kernels=[calls])
    check_sums(profile)
    found = named(profile.breakdown("kernel"))
    for row in profile["instructions"].rows():
        least = row["critical_ns"] * row["runs"]
        has = found[f"k{row['position']}"].self_ns
        assert has == pytest.approx(least, rel=1e-6)


def _group() -> Group:
    """``tanh(x @ w)`` in two modules, written by hand: (128 x 512) @ (512 x 256), in float32."""

    def there(path: str, operation: str) -> Location:
        return Location((Frame("model.py", "forward", 1),), Origin((ModuleCall(path, "C"),), operation))

    def value(*shape: int) -> Value:
        return Value(TensorType(shape, float32))

    x, w, y, z = value(128, 512), value(512, 256), value(128, 256), value(128, 256)
    numbers = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    product = Op("dot_general", (x, w), (y,), numbers, (), there("linear", "linear"))
    return Group("dot", (product, Op("tanh", (y,), (z,), {}, (), there("act", "tanh"))), (x, w), (z,))


def test_a_kernel_is_divided_by_predicted_work() -> None:
    """On trn2 Tensor does 20 TFLOPS of float32, and Vector 128 elements in each cycle of 0.96 GHz, by its manual."""
    target = load_target("trn2")
    product, act = parts_of(_group(), target)
    assert (product.reads, product.writes) == (4 * (128 * 512 + 512 * 256), 0)
    assert (act.reads, act.writes) == (0, 4 * 128 * 256)
    rate = target.dma.aggregate_gbps
    assert product.work == pytest.approx(1000 * (2 * 128 * 512 * 256 / 20e3 + product.reads / rate), abs=1)
    assert act.work == pytest.approx(1000 * (128 * 256 / (128 * 0.96) + act.writes / rate), abs=1)


@pytest.mark.parametrize(
    "source,path",
    [
        ("L['self']", ""),
        ("L['self'].layers.0", "layers.0"),
        ("L['self']._modules['layers']._modules['0'].norm", "layers.0.norm"),
        ("L['fn'].0", "0"),
        ("L['selfish'].norm", "selfish.norm"),
        ("G['encoder'].norm", "encoder.norm"),
        ("L['models'][0].norm", "models.0.norm"),
        ("", ""),
        ("L.weights", "L.weights"),
    ],
)
def test_paths_are_those_of_named_modules(source: str, path: str) -> None:
    graph = fx.Graph()
    node = graph.call_function(torch.ops.aten.add.Tensor, (graph.placeholder("x"), 1))
    node.meta["nn_module_stack"] = {"1": (source, nn.LayerNorm)}
    assert origin_of(node) == Origin((ModuleCall(path, "LayerNorm"),), "aten.add")
    node.meta["nn_module_stack"] = {"1": (source, "torch.nn.modules.normalization.LayerNorm")}
    node.meta["original_aten"] = torch.ops.aten.native_layer_norm.default
    assert origin_of(node) == Origin((ModuleCall(path, "LayerNorm"),), "aten.native_layer_norm")


BODY = Origin((ModuleCall("body"),), "mul")
"""A scope that somebody called body, in the body of a loop."""

_LINE = '"f"("model.py":3:4 to 3:9)'


@pytest.mark.parametrize(
    "location,wanted",
    [
        (
            f'"jit(f)/layers_0/attention/dot_general"({_LINE})',
            Origin((ModuleCall("layers_0"), ModuleCall("layers_0/attention")), "dot_general"),
        ),
        (f'"jit(f)/transpose(jvp(layers_0))/mul"({_LINE})', Origin((ModuleCall("layers_0"),), "mul")),
        (f'"jit(f)/jit(main)/while/body/mul"({_LINE})', Origin((), "mul")),
        (f'"jit(f)/transpose(jvp(while))/body/closed_call/body/cond/branch_1_fun/checkpoint/mul"({_LINE})', BODY),
        (_LINE, None),
        ('"model.py":3:4', None),
        ("unknown", None),
    ],
)
def test_what_a_line_of_mlir_says(location: str, wanted: Origin | None) -> None:
    text = f"""
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %0 = stablehlo.negate %x : tensor<4xf32> loc({location})
      return %0 : tensor<4xf32>
    }}
    """
    first = read(text)
    (op,) = first.main.body
    assert isinstance(op, Op) and op.location.origin == wanted
    (again,) = read(write(first)).main.body
    assert isinstance(again, Op) and again.location == op.location


def test_damaged_kernels_of_a_file_are_refused(exported: tuple[Executable, Path]) -> None:
    kernels = exported[0].model.part.kernels
    count = sum(1 for _ in exported[0].programs[0].body.walk())
    assert read_kernels(kernels_document(kernels), [count]) == kernels
    for damage in (
        lambda found: found["cores"][0][0].__setitem__(1, -1),
        lambda found: found["cores"][0][0].__setitem__(2, count + 1),
        lambda found: found["cores"][0][-1].__setitem__(2, count + 1),
        lambda found: found["cores"][0][0][3][0].__setitem__(0, len(found["origins"])),
        lambda found: found["cores"].append([]),
        lambda found: found["modules"].append(["unused", ""]),
        lambda found: found["modules"][0].__setitem__(0, 1),
        lambda found: found.pop("origins"),
    ):
        found = kernels_document(kernels)
        damage(found)
        with pytest.raises(ArtifactError) as error:
            read_kernels(found, [count])
        assert error.value.code == "artifact.model"
