"""Converters of ATen operators: a table of functions, each traced, imported, run and compared with PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from nki.graph.errors import GraphError
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.import_graph import Returned, import_graph
from nki.graph.importers.torch.reasons import reason_of
from nki.graph.importers.torch.table import CONVERTERS
from nki.graph.importers.torch.types import host_array, host_tensor
from nki.graph.stablehlo.write import write
from tests.goldens import UPDATE
from tests.graph import xla
from tests.graph.importers.torch import direct, reached
from tests.graph.importers.torch.cases import Case, Gradient, cases
from tests.graph.importers.torch.cases_more import more_cases
from tests.graph.importers.torch.edges import edges

TOGETHER = 40
"""So many functions are one graph, since tracing and compiling a graph takes longer than the functions in it."""


def parts() -> list[tuple[bool, list[Case]]]:
    """Cases in parts: those of values, and those of gradients."""
    made: list[tuple[bool, list[Case]]] = []
    for derived in (False, True):
        chosen = [case for case in [*cases(), *edges(), *more_cases()] if isinstance(case[1], Gradient) is derived]
        made += [(derived, chosen[i : i + TOGETHER]) for i in range(0, len(chosen), TOGETHER)]
    return made


PARTS = parts()


def evaluated(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """A graph as XLA runs the text of its module."""
    made = import_graph(graph)
    reached.see(graph)
    text = write(made.module)

    def run(*arguments: Any) -> list[Any]:
        values = zip(made.inputs, made.module.main.arguments, strict=True)
        found = xla.run(text, [host_array(arguments[place], value.type.dtype) for place, value in values])
        return [
            host_tensor(np.array(found[kind.number]), kind.dtype) if isinstance(kind, Returned) else kind
            for kind in made.outputs
        ]

    return make_boxed_func(run)


def compiled(function: Callable[..., Any], compiler: Callable[..., Any] = evaluated) -> Callable[..., Any]:
    """A function whose graphs, forward and backward, are imported."""

    def call(*inputs: torch.Tensor) -> Any:
        with sdpa_kernel([SDPBackend.MATH]):
            return aot_function(
                function,
                fw_compiler=compiler,
                bw_compiler=compiler,
                decompositions=reached.decompositions(),
                partition_fn=min_cut_rematerialization_partition,
            )(*inputs)

    return call


def flat(values: Any) -> list[torch.Tensor]:
    return list(values) if isinstance(values, tuple | list) else [values]


def results_of(part: list[Case]) -> tuple[Callable[..., Any], list[int]]:
    """One function for all of a part, and how many inputs each case has."""
    counts = [len(inputs) for _, _, inputs in part]

    def function(*arguments: torch.Tensor) -> list[torch.Tensor]:
        rest, made = iter(arguments), []
        for (_, each, _), count in zip(part, counts, strict=True):
            inputs = [next(rest) for _ in range(count)]
            made += flat(each.function(*inputs) if isinstance(each, Gradient) else each(*inputs))
        return made

    return function, counts


def derivatives(part: list[Case], function: Callable[..., Any]) -> list[torch.Tensor]:
    """Of the weighted sums of all results; no case shares an input with another."""
    inputs = [x.detach().clone() for _, _, given in part for x in given]
    leaves = [x.requires_grad_() for x in inputs if x.dtype.is_floating_point]
    weighted = [
        (result * torch.arange(result.numel(), dtype=torch.float32).reshape(result.shape).sin()).sum()
        for result in function(*inputs)
    ]
    return list(torch.autograd.grad(torch.stack(weighted).sum(), leaves))


@pytest.mark.filterwarnings(
    "ignore:.*degrees of freedom:UserWarning", "ignore:.*is in beta:UserWarning", "ignore:.*deprecated:UserWarning"
)
@pytest.mark.parametrize("part", PARTS, ids=[f"{cases[0][0]}..{cases[-1][0]}" for _, cases in PARTS])
def test_functions_are_computed_as_by_pytorch(part: tuple[bool, list[Case]]) -> None:
    derived, chosen = part
    reached.begin()
    function = compiled(results_of(chosen)[0])
    found = derivatives(chosen, function) if derived else function(*(x for _, _, given in chosen for x in given))
    rest = iter(found)
    for name, each, inputs in chosen:
        for wanted in flat(each(*inputs)):
            result = next(rest)
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), name
            small = wanted.dtype == torch.bfloat16 or any(x.dtype == torch.bfloat16 for x in inputs)
            tolerance = 2e-2 if small else 2e-5
            torch.testing.assert_close(
                result,
                wanted,
                rtol=tolerance,
                atol=tolerance,
                equal_nan=True,
                msg=lambda text, name=name: f"{name}: {text}",
            )
    assert not list(rest)
    reached.assert_reached(*(name for name, _, _ in chosen))


def called(calls: list[direct.Direct]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Results of calls as XLA and as PyTorch compute them."""
    graph, inputs = direct.graph_of(calls)
    made = import_graph(graph)
    reached.see(graph)
    places = zip(made.inputs, made.module.main.arguments, strict=False)
    arrays = [host_array(inputs[place], value.type.dtype) for place, value in places]
    if made.random:
        arrays.append(np.array([3, 4], np.uint32))
    results = xla.run(write(made.module), arrays)
    found = [host_tensor(np.array(results[kind.number]), kind.dtype) for kind in made.outputs]
    return found, [part for overload, arguments, *named in calls for part in flat(overload(*arguments, **dict(*named)))]


def test_operators_that_tracing_takes_apart() -> None:
    reached.begin()
    found, wanted = called(direct.exact())
    reached.assert_reached("direct-exact")
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=2e-5, atol=2e-5)


def test_operators_without_values() -> None:
    reached.begin()
    found, wanted = called(direct.without_values())
    reached.assert_reached("direct-without_values")
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]


def test_what_follows_the_last_target_counts_for_nothing() -> None:
    """PyTorch's own decomposition, which autograd takes, adds it; without autograd the one here counts."""
    x = torch.linspace(-2, 2, 20).reshape(4, 5).sin()
    several = torch.tensor([[3, 0, -1, 2, 1], [1, -1, 0, 0, 0], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
    for reduction in range(3):
        reached.begin()
        loss = partial(torch.ops.aten.multilabel_margin_loss_forward.default, reduction=reduction)
        wanted = loss(x, several)
        graph = make_fx(
            loss,
            decomposition_table=reached.decompositions(),
            tracing_mode="fake",
        )(x, several)
        for one, two in zip(evaluated(graph, None)([x, several]), wanted, strict=True):
            torch.testing.assert_close(one, two, rtol=2e-5, atol=2e-5)
        reached.assert_reached("last-target")


def test_operators_that_draw() -> None:
    reached.begin()
    found, wanted = called(direct.random())
    reached.assert_reached("direct-random")
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]
    for one, two in zip(found, wanted, strict=True):
        assert abs(float(one.float().mean()) - float(two.float().mean())) < 0.05
        assert float(one.float().min()) >= 0
        assert abs(float(one.float().std()) - float(two.float().std())) < 0.05
    assert not torch.equal(found[-1], found[-2])


LACKING = {
    "aten._local_scalar_dense.default", "aten.atan2.out",
    "aten.nonzero.default", "aten.resize_.default", "aten.sym_numel.default", "aten.sym_storage_offset.default",
}  # fmt: skip
"""Sizes that are only known at run time, what graphs do not have: docs/pytorch.md says the same."""


def core_operators() -> set[str]:
    """Those that PyTorch marks as core ATen."""
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if space == "aten" and operator is not None and torch.Tag.core in operator.tags:
            found.add(str(operator))
    return found


def test_all_of_core_aten_but_what_is_documented() -> None:
    known = set(CONVERTERS) | {str(operator) for operator in decompositions()}
    assert core_operators() - known == LACKING
    text = (Path(__file__).parents[4] / "docs" / "pytorch.md").read_text()
    assert all(f"`{name.split('.')[1]}`" in text for name in LACKING)


def test_what_has_no_converter_says_why() -> None:
    graph, _ = direct.graph_of([(torch.ops.aten._linalg_svd.default, (torch.eye(3),))])
    with pytest.raises(GraphError, match="factorisations") as caught:
        import_graph(graph)
    assert caught.value.code == "graph.unsupported" and "fallback" in str(caught.value)
    for name in ("nonzero", "masked_select", "_unique2", "_local_scalar_dense"):
        reason = reason_of(f"aten.{name}.default")
        assert reason is not None and "only known when the model runs" in reason[0]
    known = {*CONVERTERS, *map(str, decompositions())}
    assert {name.split(".")[1] for name in known if reason_of(name)} == {"repeat_interleave"}


def test_converters_are_used_whatever_is_imported_first() -> None:
    """In a new process, nothing but the backend is there when PyTorch asks what is to be taken apart."""
    code = "from nki.graph.importers.torch.decompositions.table import decompositions; print(*decompositions())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) & CONVERTERS.keys() <= set(map(str, decompositions()))


@pytest.mark.golden
def test_every_converter_is_reached() -> None:
    """The table names every operator and cases that exist; that they reach them is looked at where they run."""
    if UPDATE:
        subprocess.run([sys.executable, "-m", "tests.graph.importers.torch.reached_write"], check=True)
    table = reached.table()
    lacking = reached.operators() - table.keys()
    assert not lacking, "run `make goldens`"
    assert sorted(table.keys() - reached.operators()) == []
    names = {name for _, part in PARTS for name, _, _ in part}
    assert sorted(set(table.values()) - {*names, *reached.OTHERS}) == []
