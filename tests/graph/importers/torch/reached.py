"""Which converters and decompositions a test reaches: seen while graphs are traced, and kept in a table by operator.

Each process of a test run sees some of the tests only, so the table says by which case each operator is reached: the
test of a case looks whether it was, and one test looks whether every operator is in the table. After a change of cases
or converters, `make goldens` writes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from nki.graph.importers.torch import import_graph
from nki.graph.importers.torch.decompositions import table as torch_decompose
from nki.graph.importers.torch.table import CONVERTERS

TABLE = Path(__file__).with_name("reached.json")

SEEN: set[str] = set()
"""Operators that were reached since the last `begin`."""


OTHERS = ("direct-exact", "direct-without_values", "direct-random", "curves", "whole", "last-target", "collectives")
"""Tests of several operators, which stand for cases in the table."""


def begin() -> None:
    """Forget what was seen."""
    SEEN.clear()


def see(graph: torch.fx.GraphModule) -> None:
    """The operators of a graph that is imported."""
    SEEN.update(str(node.target) for node in graph.graph.nodes if node.op == "call_function")


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table of decompositions, with those of this project seen when they answer."""
    table = dict(torch_decompose.decompositions())
    for operator, function in torch_decompose.own_decompositions().items():
        table[operator] = _watched(str(operator), function)
    return table


def _watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        made = function(*arguments, **named)
        if made is not NotImplemented:
            SEEN.add(name)
        return made

    return call


def operators() -> set[str]:
    """All that have to be reached."""
    assert import_graph.FAMILIES
    return set(CONVERTERS) | {str(operator) for operator in torch_decompose.own_decompositions()}


def table() -> dict[str, str]:
    """By which case each operator is reached."""
    found: dict[str, str] = json.loads(TABLE.read_text())
    return found


def assert_reached(*cases: str) -> None:
    """Whether what the table says of some cases was seen."""
    assert sorted(name for name, case in table().items() if case in cases and name not in SEEN) == []
