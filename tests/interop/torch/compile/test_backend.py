"""Kernels and operators inside graphs: one opaque node, no graph break, the same values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.interop.torch import wrap_nki
from tests.interop.torch.kernels import assign, both_scaled, duplicate, fill_from, matrix, multiply, product

twice = product[2]


def by_operators(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    target = torch.zeros_like(a)
    assign(target, b)
    return multiply(a * 2, target) + duplicate(b)


def by_wrapped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    target = torch.zeros_like(a)
    wrap_nki(fill_from)(target, b)
    return wrap_nki(product)[2](a * 2, target) + b


def by_kernels(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    target = torch.zeros_like(a)
    fill_from(target, b)
    return twice(a * 2, b=target) + b


def expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a * 2 * b + b


def compiled(function: Callable[..., Any], backend: str = "aot_eager", dynamic: bool | None = None) -> Any:
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)


@pytest.mark.parametrize("function", [by_operators, by_wrapped, by_kernels])
@pytest.mark.parametrize("dynamic", [None, True])
def test_graphs_give_the_same_values(function: Callable[..., Any], dynamic: bool | None) -> None:
    run = compiled(function, dynamic=dynamic)
    for columns in (32, 8):
        a, b = matrix(columns), matrix(columns, seed=1)
        torch.testing.assert_close(run(a, b), expected(a, b))
        torch.testing.assert_close(function(a, b), expected(a, b))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor() -> None:
    a, b = matrix(), matrix(seed=1)
    run = compiled(lambda a, b: by_operators(a, b) + by_wrapped(a, b), backend="inductor")
    torch.testing.assert_close(run(a, b), 2 * expected(a, b))


def test_writes_to_inputs_of_the_graph_are_kept() -> None:
    def update(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        assign(target[:, :8], source)
        wrap_nki(fill_from)(target[:, 8:], source)
        return target.sum()

    target, source = torch.zeros(128, 16), matrix(8)
    total = compiled(update)(target, source)
    assert torch.equal(target, torch.cat([source, source], 1))
    torch.testing.assert_close(total, 2 * source.sum())


def test_structures_numbers_and_keywords() -> None:
    @nki.jit
    def nested(pair, number):
        tile = nl.ndarray(pair[0].shape, dtype=pair[0].dtype, buffer=nl.sbuf)
        out = nl.ndarray(pair[0].shape, dtype=pair[0].dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=pair[1])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(number))
        nisa.dma_copy(dst=out, src=tile)
        return out, [None, out], {"tensor": out}

    wrapped = wrap_nki(nested)

    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        first, listed, named = wrapped((a, b), number=3)
        result = wrap_nki(both_scaled)(a, scale=0.5, dtype=nl.bfloat16)
        return first, listed, named, result

    a, b = matrix(), matrix(seed=1)
    first, listed, named, result = compiled(function)(a, b)
    assert torch.equal(first, b * 3)
    assert torch.equal(named["tensor"], b * 3)
    assert listed[0] is None
    assert torch.equal(listed[1], b * 3)
    assert torch.equal(result["scaled"], (a * 0.5).bfloat16())
    assert torch.equal(result["rest"][0], a)
    assert result["rest"][1] is None


def test_export_and_make_fx_have_one_node() -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return wrap_nki(product)(a, b) + multiply(a, b)

    a, b = matrix(), matrix(seed=1)
    program = torch.export.export(Model(), (a, b))
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert names == ["nki.call_1.default", "nki_tests.multiply.default", "aten.add.Tensor"]
    torch.testing.assert_close(program.module()(a, b), 2 * a * b)
    graph = make_fx(lambda a, b: product(a, b) + 1)(a, b)
    assert [str(node.target) for node in graph.graph.nodes][2] == "nki.call_1.default"
    torch.testing.assert_close(graph(a, b), a * b + 1)


def test_names_of_calls_are_the_same_for_the_same_kernel() -> None:
    a, b = matrix(), matrix(seed=1)

    def name_of_call(function: Callable[..., Any], *args: torch.Tensor) -> object:
        (node,) = (node for node in make_fx(function)(*args).graph.nodes if node.op == "call_function")
        return node.args[-1]

    first = name_of_call(product, a, b)
    assert name_of_call(product, a, b) == first
    assert name_of_call(product, a[:, :8], b[:, :8]) != first
    assert name_of_call(twice, a, b) != first


def test_the_error_of_a_kernel_is_in_the_message() -> None:
    with pytest.raises(Exception, match=r"nisa\.\w+: .*\n.*kernels\.py:\d+"):
        compiled(lambda a, b: wrap_nki(product)(a, b) + 1)(matrix(), matrix(8))
    with pytest.raises(Exception, match=r"VerificationError\('nisa\.") as caught:
        compiled(lambda a, b: multiply(a, b) + 1)(matrix(), matrix(8))
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, NkiError):
        error = error.__cause__ or error.__context__
    assert "kernels.py" in str(error)


def test_a_kernel_that_changes_after_the_trace_is_refused() -> None:
    width = 1.0

    @nki.jit
    def widened(a):
        out = nl.ndarray(a.shape, dtype=nl.float32 if width == 1.0 else nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    graph = make_fx(widened)(matrix())
    assert graph(matrix()).dtype == torch.float32
    width = 2.0
    with pytest.raises(Exception, match="when the graph was traced"):
        graph(matrix())
