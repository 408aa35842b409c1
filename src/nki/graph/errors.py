"""The error for models that cannot be compiled."""

from __future__ import annotations

from nki.core.errors import NkiError
from nki.graph.ir import Op


class GraphError(NkiError):
    """A model, or an operation in it, that cannot be compiled; the location is the model's line."""


def unsupported(op: Op, reason: str, fix: str) -> GraphError:
    """The error for an operation without a way to the device.

    Args:
        reason: what about it is not supported, with the actual numbers.
        fix: one way out.
    """
    types = ", ".join(str(value.type) for value in op.operands)
    results = ", ".join(str(value.type) for value in op.results)
    return GraphError(
        "graph.unsupported",
        f"{op.name}({types}) -> {results}: {reason}",
        rule="an operation of the model has a kernel that computes it on the device",
        fix=fix,
        location=op.location,
    )
