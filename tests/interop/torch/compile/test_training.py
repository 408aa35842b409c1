"""``torch.compile(backend="neuron")``: values, gradients, devices, kernels in graphs, random numbers, refusals."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from nki.core.errors import ArgumentError, LaunchError, TargetError
from nki.graph.errors import GraphError
from nki.graph.executable import Executable
from nki.interop.torch import compiled_graphs, enable_device, forget, nki_op, provenance, wrap_nki
from nki.report import NkiWarning
from nki.runtime.spans import recording
from tests.interop.torch.kernels import differentiable, fill_from


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend="neuron", fullgraph=True, options=options or None)


def test_a_function_is_one_program_with_a_report() -> None:
    x = torch.randn(6, 8)
    torch.testing.assert_close(compiled(lambda x: F.softmax(x * 2, -1) + 1)(x), F.softmax(x * 2, -1) + 1)
    graph = compiled_graphs()[-1]
    assert graph.name.startswith("inference_")
    assert graph.executable.report.instructions > 0


def test_a_model_and_its_gradients() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    other, x = copy.deepcopy(model), torch.randn(5, 8)
    found, wanted = compiled(other)(x), model(x)
    found.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(found, wanted)
    for one, two in zip(other.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)
    assert {graph.name.split("_")[0] for graph in compiled_graphs()} >= {"forward", "backward"}


def test_statistics_of_batch_norm_change() -> None:
    model = torch.nn.BatchNorm1d(4)
    other, x = copy.deepcopy(model), torch.randn(6, 4)
    torch.testing.assert_close(compiled(other)(x), model(x))
    torch.testing.assert_close(other.running_var, model.running_var)
    assert other.num_batches_tracked == 1


def test_dtypes_cross_the_boundary() -> None:
    x, i, mask = torch.randn(4, 6, dtype=torch.bfloat16), torch.arange(24).view(4, 6), torch.rand(4, 6) > 0.5
    found = compiled(lambda x, i, m: (torch.where(m, x, 0) * 2, i + 1, ~m))(x, i, mask)
    torch.testing.assert_close(found[0], torch.where(mask, x, 0) * 2)
    assert found[1].dtype == torch.int64
    assert torch.equal(found[1], i + 1)
    assert torch.equal(found[2], ~mask)
    assert compiled_graphs()[-1].notes == ("int64 is int32 on the device",)


def test_a_strided_argument_is_copied_in_order() -> None:
    x = torch.randn(6, 4).t()
    torch.testing.assert_close(compiled(lambda x: x * 2)(x), x * 2)


def test_an_integer_beyond_32_bits_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"graph\.range"):
        compiled(lambda x: x + 1)(torch.tensor([1 << 40]))


def test_other_sizes_are_another_program() -> None:
    double = torch.compile(lambda x: x * 2, backend="neuron", dynamic=True)
    for size in (5, 7):
        assert torch.equal(double(torch.ones(size)), torch.full((size,), 2.0))


def test_tensors_on_the_device() -> None:
    enable_device()
    x = torch.randn(4, 8)
    found = compiled(lambda x: x.exp() + 1)(x.to("neuron"))
    assert found.device.type == "neuron"
    torch.testing.assert_close(found.cpu(), x.exp() + 1)


def test_kernels_are_linked_into_the_program() -> None:
    def model(x, y):
        cache = torch.zeros_like(x)
        wrap_nki(fill_from)[1](cache, x * 2)
        return cache + differentiable(x + 1, y)

    x, y = torch.randn(128, 16), torch.randn(128, 16)
    torch.testing.assert_close(compiled(model)(x, y), x * 2 + (x + 1) * y)
    assert compiled_graphs()[-1].executable.report.kernels["call"] == 2


def test_a_kernel_s_backward_is_in_the_backward_program() -> None:
    a, b = torch.randn(128, 4, requires_grad=True), torch.randn(128, 4)
    compiled(lambda a, b: differentiable(a.exp(), b).sum())(a, b).backward()
    torch.testing.assert_close(a.grad, b * a.detach().exp())
    assert compiled_graphs()[-1].executable.report.kernels["call"] >= 1


def test_dropout_follows_the_seed_and_differs_between_calls() -> None:
    drop = compiled(lambda x: F.dropout(x, 0.25))
    x = torch.ones(64, 64)
    torch.manual_seed(1)
    first, second = drop(x), drop(x)
    torch.manual_seed(1)
    assert torch.equal(drop(x), first)
    assert not torch.equal(first, second)
    assert first.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert 0.2 < float((first == 0).float().mean()) < 0.3


def test_normal_numbers_and_permutations() -> None:
    drawn = compiled(lambda x: (torch.randn(64, 64), torch.randn_like(x), torch.randperm(100)))
    torch.manual_seed(2)
    one, like, places = drawn(torch.zeros(64, 64, dtype=torch.bfloat16))
    for numbers in (one, like.float()):
        assert abs(float(numbers.mean())) < 0.06
        assert abs(float(numbers.std()) - 1) < 0.05
        assert 0.66 < float((numbers.abs() < 1).float().mean()) < 0.71
    assert like.dtype == torch.bfloat16
    assert sorted(places.tolist()) == list(range(100)) != places.tolist()
    torch.manual_seed(2)
    assert torch.equal(drawn(torch.zeros(64, 64, dtype=torch.bfloat16))[0], one)


def test_an_unsupported_operator_names_the_model_s_line() -> None:
    def model(x):
        return torch.linalg.svd(x)[1] + 1

    with pytest.raises(GraphError) as caught:
        compiled(model)(torch.randn(3, 3))
    error = caught.value
    assert error.code == "graph.unsupported"
    assert "aten._linalg_svd.default(tensor<3x3xfloat32>" in error.message
    assert Path(error.location.frame.file) == Path(__file__)
    assert error.location.frame.line == model.__code__.co_firstlineno + 1


def test_the_host_takes_over_only_where_that_is_asked_for() -> None:
    x = torch.randn(3, 3)
    forget()
    with pytest.warns(NkiWarning, match=r"torch\.host"):
        found = compiled(lambda x: torch.linalg.svd(x)[1], fallback="host")(x)
    torch.testing.assert_close(found, torch.linalg.svd(x)[1])
    assert [count for name, count in provenance().items() if name.startswith("torch.compile inference_")] == [1]


def _with_svd(x):
    y = (x @ x.T).sin()
    _, values, turned = torch.linalg.svd(y)
    upper = torch.linalg.qr(turned)[1].abs()
    return (upper + values).tanh(), y + 3


@pytest.mark.filterwarnings("ignore::nki.report.NkiWarning")
def test_operators_on_the_host_are_between_programs_of_the_device() -> None:
    x = torch.randn(6, 6)
    forget()
    model = compiled(_with_svd, fallback="host")
    with recording() as recorded:
        found = model(x)
    torch.testing.assert_close(found, _with_svd(x), rtol=1e-4, atol=1e-5)
    hosted = ["aten._linalg_svd.default", "aten.linalg_qr.default"]
    assert [name.split(": ")[1] for name in provenance()] == hosted
    assert set(provenance().values()) == {1}
    spans = [each.name for each in recorded.spans if each.category == "host"]
    assert spans == ["host aten._linalg_svd.default, aten.linalg_qr.default"]
    reports = [graph.executable.report for graph in compiled_graphs()[-2:]]
    assert all(report.kernels for report in reports)
    line = _with_svd.__code__.co_firstlineno + 2
    assert all(f"{Path(__file__)}:{line}" in dict(report.fallbacks)["aten._linalg_svd.default"] for report in reports)
    assert "aten._linalg_svd.default at" in str(reports[0])


@pytest.mark.filterwarnings("ignore::nki.report.NkiWarning")
def test_derivatives_of_what_runs_on_the_host() -> None:
    x = torch.randn(4, 4, requires_grad=True)

    def loss(x):
        return torch.linalg.svdvals(x @ x.T + torch.eye(4)).log().sum()

    compiled(loss, fallback="host")(x).backward()
    made, x.grad = x.grad, None
    loss(x).backward()
    torch.testing.assert_close(made, x.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::nki.report.NkiWarning")
def test_what_follows_a_size_that_is_unknown_runs_on_the_host_as_well() -> None:
    x = torch.randn(8, 8)

    def selected(x):
        y = x.exp()
        return y[x > 0].sum(), y * 2

    torch.testing.assert_close(compiled(selected, fallback="host")(x), selected(x))
    assert any(graph.executable.report.kernels for graph in compiled_graphs()[-2:])


@pytest.mark.parametrize("options", [{"fall_back": "host"}, {"fallback": "gpu"}])
def test_a_misspelt_option_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=r"torch\.compile-options"):
        compiled(lambda x: x + 1, **options)(torch.ones(2))


def test_a_mode_is_refused() -> None:
    torch.compiler.reset()
    with pytest.raises(LaunchError, match=r"torch\.compile-options.*mode='reduce-overhead'"):
        torch.compile(lambda x: x + 1, backend="neuron", mode="reduce-overhead")(torch.ones(2))


def test_an_unknown_target_is_refused_at_the_users_line() -> None:
    with pytest.raises(TargetError, match="trn9") as caught:
        compiled(lambda x: x + 1, target="trn9")(torch.ones(2))
    assert caught.value.location.frame is not None
    assert caught.value.location.frame.file == __file__


def test_every_stage_of_every_graph_is_written(tmp_path: Path) -> None:
    compiled(lambda x: x + 1, dump_dir=str(tmp_path))(torch.ones(4))
    (folder,) = tmp_path.iterdir()
    assert (folder / "model.neff").is_file()
    assert "stablehlo.add" in next(folder.glob("00-*.mlir")).read_text()


@nki_op("backend_tests::fills", mutates_args={"target"})
def fills(target: torch.Tensor, source: torch.Tensor, times: int) -> torch.Tensor:
    fill_from(target, source * times)
    return source + 1


def test_results_in_another_shape_than_their_memory_are_saved(tmp_path: Path) -> None:
    x, weight = torch.randn(2, 3, 8), torch.randn(4, 8)
    found, empty = compiled(lambda x, w: (F.linear(x, w), x.new_zeros(0, 3)), dump_dir=str(tmp_path))(x, weight)
    torch.testing.assert_close(found, F.linear(x, weight))
    assert empty.shape == (0, 3)
    (folder,) = tmp_path.iterdir()
    again, _ = Executable.load(folder / "model.neff").run([x.numpy(), weight.numpy()])
    torch.testing.assert_close(torch.from_numpy(again), found)


def test_an_operator_that_writes_is_part_of_the_program() -> None:
    def model(x, kept):
        target = torch.zeros_like(x)
        more = fills(target, x.sin(), times=3)
        fills(kept, target, 2)
        return target * 2 + more

    x, kept, other = torch.randn(128, 4), torch.zeros(128, 4), torch.zeros(128, 4)
    found, wanted = compiled(model)(x, kept), model(x, other)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(kept, other)
    assert other.any()
    assert compiled_graphs()[-1].executable.report.kernels["call"] == 2


@nki_op("backend_tests::filled", mutates_args=())
def filled(source: torch.Tensor) -> torch.Tensor:
    target = torch.zeros_like(source)
    more = torch.ops.backend_tests.fills(target, source.sin(), 3)
    fills(target, target + more, 2)
    return target * 2 + more


@nki_op("backend_tests::fills_twice", mutates_args={"target"})
def fills_twice(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    fills(target, source, 2)
    return fills(target, target + source, 3) + filled(source)


def test_operators_that_write_inside_of_other_operators() -> None:
    def model(x, kept):
        return filled(x.cos()) + fills_twice(kept, x)

    x, kept, other = torch.randn(128, 4), torch.zeros(128, 4), torch.zeros(128, 4)
    found, wanted = compiled(model)(x, kept), model(x, other)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(kept, other)
    assert other.any()
    assert compiled_graphs()[-1].executable.report.kernels["call"] == 6


def test_an_operator_that_writes_loses_no_gradient() -> None:
    def model(x):
        target = torch.zeros_like(x)
        fills(target, x, 1)
        return target.sum()

    with pytest.raises(Exception, match="requires a gradient, and has no backward"):
        compiled(model)(torch.randn(128, 4, requires_grad=True))


def test_selecting_by_a_mask_is_refused_with_a_way_out() -> None:
    with pytest.raises(Exception, match=r"torch\.where") as caught:
        compiled(lambda x: x[x > 0].sum())(torch.randn(4))
    assert "graph.dynamic-shape" in str(caught.value)
    x = torch.randn(4)
    found = compiled(lambda x: torch.where(x > 0, x, 0).sum())(x)
    torch.testing.assert_close(found, x[x > 0].sum())


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_of_torch_nn_in_evaluation_mode(norm_first: bool, activation: str) -> None:
    """PyTorch calls one fused operator for a whole layer then."""
    made = {"batch_first": True, "norm_first": norm_first, "activation": activation}
    layer = torch.nn.TransformerEncoderLayer(32, 4, 48, **made).eval()
    x, padding = torch.randn(2, 10, 32), torch.zeros(2, 10, dtype=torch.bool)
    padding[1, 7:] = True
    with torch.no_grad():
        found = compiled(lambda x, padding: (layer(x), layer(x, src_key_padding_mask=padding)))(x, padding)
        expected = layer(x), layer(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1][0], expected[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1][1, :7], expected[1][1, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("average", [False, True])
def test_attention_of_torch_nn_in_evaluation_mode(average: bool) -> None:
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x, mask = torch.randn(2, 10, 32), torch.ones(10, 10, dtype=torch.bool).triu(1)
    with torch.no_grad():
        found = compiled(lambda x: attention(x, x, x, attn_mask=mask, average_attn_weights=average))(x)
        expected = attention(x, x, x, attn_mask=mask, average_attn_weights=average)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
