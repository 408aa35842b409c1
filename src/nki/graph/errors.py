"""The error for models that cannot be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nki.core.errors import NkiError
from nki.core.source import UNKNOWN, Location
from nki.graph.ir import Op

_MOST_SHOWN = 200
"""Characters of another error's message."""


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


def internal(error: Exception, doing: str, location: Location) -> GraphError:
    """The error for a failure of the graph compiler itself, to be raised from what failed.

    Args:
        doing: what the compiler was about.
        location: the model's line.
    """
    text = error.message if isinstance(error, NkiError) else str(error)
    shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return GraphError(
        "graph.internal",
        f"{doing} failed with {_kind(error)}" + (f": {shown}" if shown else ""),
        rule="the graph compiler compiles a model, or says which operation it cannot compile and why",
        fix='report it with this message and its cause; until then fallback="host" keeps the operation on the host',
        location=location,
    )


def _kind(error: Exception) -> str:
    return error.code if isinstance(error, NkiError) else type(error).__name__


@contextmanager
def guarded(doing: str, location: Location = UNKNOWN) -> Iterator[None]:
    """What fails inside without a code becomes "graph.internal"; the failure is its cause.

    Raises:
        GraphError: "graph.internal".
    """
    try:
        yield
    except (NkiError, Warning, MemoryError):  # warnings are errors where the user wants that
        raise
    except Exception as error:
        raise internal(error, doing, location) from error
