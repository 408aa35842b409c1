"""Random graphs give what every correct implementation gives; so do the parts of the test what they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nki.graph.errors import GraphError
from tests.graph.differential import judge
from tests.graph.differential.bound import multiply, point, total
from tests.graph.differential.draw import SEEDS, bounds_of, graph
from tests.graph.differential.gradients import derivatives, wrong_derivatives
from tests.graph.differential.judge import failed, outcome, outside
from tests.graph.differential.pointwise import converted
from tests.graph.differential.records import Graph, Input, Node
from tests.graph.differential.run import eagerly, on_device, source
from tests.graph.differential.shrink import smallest
from tests.graph.differential.snippet import snippet
from tests.graph.differential.table import TABLE
from tests.graph.differential.tally import Tally, record


@pytest.mark.parametrize("group", range(3))
def test_random_graphs(group: int) -> None:
    numbers = range(group * 4, group * 4 + 4)
    found = {number: outcome(graph(number)) for number in numbers}
    assert {number: str(each) for number, each in found.items() if each.fault} == {}
    assert any(each.status == "right" for each in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_more_random_graphs(seed: int) -> None:
    found = {number: outcome(graph(number)) for number in range(seed * SEEDS, seed * SEEDS + 100)}
    assert {number: str(each) for number, each in found.items() if each.fault} == {}


def masked(seed: int = 0) -> Graph:
    """A product with a mask of its own for each batch."""
    inputs = (
        Input((3, 4, 8), "float32", "normal", 0, seed),
        Input((3, 8, 16), "float32", "normal", 0, seed + 1),
        Input((3, 1, 16), "float32", "normal", 0, seed + 2),
    )
    nodes = (Node("matmul", (0, 1)), Node("add", (3, 2), {"language": "torch"}), Node("relu", (4,)))
    return Graph(seed, "torch", "trn2", 1, "0", inputs, nodes, (5,))


def test_a_mask_that_is_read_for_the_first_batch_only_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = masked()
    assert outcome(drawn).status == "right"
    x, y, mask = (each.array() for each in drawn.inputs)
    monkeypatch.setattr(judge, "on_device", lambda *_: [np.maximum(x @ y + mask[:1], 0)])
    found = outcome(drawn)
    assert found.status == "wrong"
    assert "of 192 wrong" in found.why


def test_a_rounding_that_is_left_out_is_outside_of_the_bounds() -> None:
    x = Input((500,), "float32", "normal", 0, 1).array()
    bound = converted(converted(point(x, "float32"), "bfloat16"), "float32")
    assert outside(x.astype(bound.dtype), bound)
    half = x.view(np.uint32) & np.uint32(0xFFFF0000)
    assert outside(half.view(np.float32), bound)  # cut off, not rounded


def test_both_neighbours_count_where_an_error_decides_and_nowhere_else() -> None:
    third = multiply(point(np.float32([3.0]), "float32"), point(np.float32([1 / 3]), "float32"), "float32")
    tie = replace(third, low=np.array([0.4999999]), high=np.array([0.5000001]))
    floor = TABLE["round"].bound({}, tie)
    assert (floor.low, floor.high) == (0.0, 1.0)
    apart = replace(third, low=np.array([0.4]), high=np.array([0.45]))
    assert TABLE["round"].bound({}, apart).exact


def test_any_order_of_a_sum_is_within_its_bound() -> None:
    x = np.random.default_rng(0).standard_normal(512).astype(np.float32) * 100
    bound = total(point(x, "float32"), (0,), True)
    for order in (x, x[::-1], np.sort(x)):
        sequential = np.float32(0)
        for number in order:
            sequential += number
        assert not outside(np.array([sequential]), bound)
    assert outside(np.array([np.sort(x)[1:].sum()], np.float32), bound)


@pytest.mark.parametrize("group", range(2))
def test_the_framework_is_within_the_bounds(group: int) -> None:
    """The bounds themselves are right: each is compared with what the framework computes."""
    for number in range(1000 + group * 15, 1015 + group * 15):
        drawn = graph(number)
        if drawn.language == "jax" or drawn.derived or judge.coarse(drawn):
            continue
        values = bounds_of(drawn)
        for array, place in zip(eagerly(drawn), drawn.results, strict=True):
            assert not outside(array, values[place]), (number, source(drawn))


@pytest.mark.parametrize("language", ["torch", "jax"])
def test_derivatives_are_those_of_float64(language: str) -> None:
    drawn = replace(masked(), front=language, derived=True)
    exact = judge.outcome(drawn)
    assert (exact.status, exact.why) == ("right", "")
    found = [np.array(x) for x in on_device(drawn, derivatives(drawn))]
    found[2][1, 0, 3] += 1e-4
    assert "derivative 2 at [1, 0, 3]" in wrong_derivatives(drawn, found)
    compile(snippet(drawn), "snippet", "exec")


def test_a_number_makes_the_same_graph_again() -> None:
    for number in range(2000, 2010):
        assert graph(number) == graph(number)


def test_graphs_differ_in_all_that_is_drawn() -> None:
    tally = Tally(record(drawn, judge.Outcome("right")) for drawn in map(graph, range(3000, 3120)))
    assert set(tally.counts["target"]) == {"trn1", "trn2", "trn3"}
    assert set(tally.counts["cores"]) == {"1", "2"}
    assert set(tally.counts["front"]) == {"torch", "jax", "dynamo"}
    assert len(tally.counts["operators"]) > 0.8 * len(TABLE)
    assert tally.lines()[0] == "120 graphs: right 120"


def test_faults_become_small() -> None:
    drawn = replace(masked(), target="trn3", cores=2, native="always", results=(3, 5))
    small = smallest(drawn, lambda g: any(node.operator == "relu" for node in g.nodes))
    assert [node.operator for node in small.nodes] == ["relu"]
    assert (small.results, len(small.inputs)) == ((1,), 1)
    assert (small.target, small.cores, small.native) == ("trn2", 1, "0")
    assert np.prod(small.inputs[0].shape) < 8
    compile(snippet(small), "snippet", "exec")


def test_refusals_have_a_code_and_anything_else_is_a_crash() -> None:
    error = GraphError("graph.unsupported", "no way")
    assert failed(error).status == "refused"
    assert failed(error).kind == "graph.unsupported"
    wrapped = RuntimeError("from Dynamo")
    wrapped.__cause__ = error
    assert failed(wrapped).status == "refused"
    internal = GraphError(judge.INTERNAL, "a pass failed")
    internal.__cause__ = KeyError("x")
    for each in (failed(KeyError("x")), failed(internal)):
        assert each.fault
        assert each.kind.startswith("KeyError")
