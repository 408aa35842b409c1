"""All operators of random graphs, by name."""

from __future__ import annotations

from tests.graph.differential import moves, pointwise, products, rows
from tests.graph.differential.operator import TABLE, Operator

FAMILIES = (pointwise, moves, rows, products)
"""The modules that enter operators into the table."""

__all__ = ["FAMILIES", "TABLE", "Operator"]
