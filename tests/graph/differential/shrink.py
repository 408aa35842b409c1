"""Smaller graphs with the same fault: fewer operators and results, smaller sizes, plainer dtypes and settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

from tests.graph.differential.bound import UndefinedError
from tests.graph.differential.draw import bounds_of, vague
from tests.graph.differential.judge import Outcome, outcome
from tests.graph.differential.records import FLOATS, INTEGERS, Graph, Input, Node

_SIZES = (1, 2, 3, 4, 8, 16, 32, 64, 127, 128, 129, 256, 512)


def shrunk(graph: Graph, found: Outcome, seconds: float = 60.0) -> Graph:
    """The smallest graph that is found in some time and fails as the given one does."""

    def fails(candidate: Graph) -> bool:
        now = outcome(candidate)
        return (now.status, now.kind) == (found.status, found.kind)

    return smallest(graph, fails, seconds)


def smallest(graph: Graph, fails: Callable[[Graph], bool], seconds: float = 60.0) -> Graph:
    """Takes the first simpler graph that fails, until there is none."""
    end = monotonic() + seconds
    for simpler in (_fewer, _plainer, _smaller, _fewer):
        again = True
        while again:
            again = False
            for candidate in simpler(graph):
                if monotonic() > end:
                    return graph
                if candidate != graph and _possible(candidate) and fails(candidate):
                    graph, again = candidate, True
                    break
    return graph


def _possible(graph: Graph) -> bool:
    """Whether the shapes fit, and enough is known of the results."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = bounds_of(graph)
    except (UndefinedError, ValueError, IndexError, RuntimeError, TypeError, AssertionError, ZeroDivisionError):
        return False
    return all(values[k].size > 0 and not vague(values[k], 0.5) for k in graph.results)


def _fewer(graph: Graph) -> Iterator[Graph]:
    """With fewer results and operators, the fewest first."""
    first = len(graph.inputs)
    for number in range(len(graph.nodes) - 1):
        yield pruned(replace(graph, results=(first + number,)))
    if len(graph.results) > 1:
        yield from (pruned(replace(graph, results=(k,))) for k in graph.results)
    for number in range(len(graph.nodes)):
        yield from _without(graph, number)


def pruned(graph: Graph) -> Graph:
    """Only what the results need."""
    first = len(graph.inputs)
    needed = set(graph.results)
    for number in reversed(range(len(graph.nodes))):
        if number + first in needed:
            needed |= set(graph.nodes[number].operands)
    renamed = {old: new for new, old in enumerate(sorted(needed))}
    return replace(
        graph,
        inputs=tuple(x for k, x in enumerate(graph.inputs) if k in needed),
        nodes=tuple(
            replace(node, operands=tuple(renamed[k] for k in node.operands))
            for number, node in enumerate(graph.nodes)
            if number + first in needed
        ),
        results=tuple(renamed[k] for k in graph.results),
        constants=tuple(renamed[k] for k in graph.constants if k in needed),
    )


def _without(graph: Graph, number: int) -> Iterator[Graph]:
    """Without one operator: its operand, or an input, is in its place."""
    place = number + len(graph.inputs)
    bounds = bounds_of(graph)
    made = bounds[place]
    for operand in graph.nodes[number].operands:
        same = bounds[operand].shape == made.shape and bounds[operand].dtype == made.dtype
        if same and not (place in graph.results and operand < len(graph.inputs)):
            yield pruned(_renamed(graph, {place: operand}, drop=number))
    if place not in graph.results:
        yield pruned(_as_input(graph, number, made.shape, made.dtype))


def _renamed(graph: Graph, renamed: dict[int, int], drop: int) -> Graph:
    place = drop + len(graph.inputs)

    def now(k: int) -> int:
        k = renamed.get(k, k)
        return k - 1 if k > place else k

    nodes = [replace(n, operands=tuple(map(now, n.operands))) for k, n in enumerate(graph.nodes) if k != drop]
    return replace(graph, nodes=tuple(nodes), results=tuple(map(now, graph.results)))


def _as_input(graph: Graph, number: int, shape: tuple[int, ...], dtype: str) -> Graph:
    """The result of an operator as a new input, which comes after the others."""
    first = len(graph.inputs)
    place = number + first

    def now(k: int) -> int:
        return first if k == place else k + 1 if first <= k < place else k

    kind = "truth" if dtype == "bool" else "whole" if dtype in INTEGERS else "normal"
    more = Input(shape, dtype, kind, 9, graph.seed * 100 + 50 + number)
    nodes = [replace(n, operands=tuple(map(now, n.operands))) for k, n in enumerate(graph.nodes) if k != number]
    return replace(graph, inputs=(*graph.inputs, more), nodes=tuple(nodes), results=tuple(map(now, graph.results)))


def _plainer(graph: Graph) -> Iterator[Graph]:
    if graph.cores > 1:
        yield replace(graph, cores=1)
    if graph.native != "0":
        yield replace(graph, native="0")
    if graph.constants:
        yield replace(graph, constants=())
    if graph.front == "dynamo":
        yield replace(graph, front="torch")
    if graph.target != "trn2":
        yield replace(graph, target="trn2")
    for dtype in {x.dtype for x in graph.inputs if x.dtype in FLOATS and x.dtype != "float32"}:
        yield _with_dtype(graph, dtype, "float32")
    for k, x in enumerate(graph.inputs):
        if x.kind in ("special", "mask"):
            yield replace(graph, inputs=(*graph.inputs[:k], replace(x, kind="normal"), *graph.inputs[k + 1 :]))


def _with_dtype(graph: Graph, old: str, new: str) -> Graph:
    inputs = tuple(replace(x, dtype=new) if x.dtype == old else x for x in graph.inputs)
    nodes = [
        Node(n.operator, n.operands, {k: new if v == old and k == "back" else v for k, v in n.attributes.items()})
        for n in graph.nodes
    ]
    return replace(graph, inputs=inputs, nodes=tuple(nodes))


def _smaller(graph: Graph) -> Iterator[Graph]:
    """One size, wherever it is, made smaller."""
    sizes = {n for x in graph.inputs for n in (*x.shape, x.bound)}
    sizes |= {n for node in graph.nodes for v in node.attributes.values() if isinstance(v, tuple) for n in _numbers(v)}
    for old in sorted(sizes, reverse=True):
        for new in (n for n in _SIZES if n < old):
            yield _resized(graph, old, new)


def _numbers(value: tuple[Any, ...]) -> list[int]:
    return [n for n in value if isinstance(n, int) and n > 1]


def _resized(graph: Graph, old: int, new: int) -> Graph:
    inputs = tuple(
        replace(
            x,
            shape=tuple(new if n == old else n for n in x.shape),
            bound=new if x.kind in ("index", "unique") and x.bound == old else x.bound,
        )
        for x in graph.inputs
    )
    nodes = tuple(
        replace(n, attributes={k: _other(k, v, old, new) for k, v in n.attributes.items()}) for n in graph.nodes
    )
    return replace(graph, inputs=inputs, nodes=nodes)


def _other(name: str, value: Any, old: int, new: int) -> Any:
    if name == "shape":
        return tuple(new if n == old else n for n in value)
    return new if name == "size" and value == old else value
