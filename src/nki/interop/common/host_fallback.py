"""What PyTorch and JAX have in common where operators run on the host because the user asked for that."""

from __future__ import annotations

from collections.abc import Iterable

from nki.core.errors import NkiError
from nki.report import warn
from nki.spec.rule import Finding


def part_of(sources: Iterable[int], hosted: bool) -> int:
    """The number of the part of a graph that an operator belongs to: even on the device, odd on the host.

    A part only needs parts of lower numbers, and has what can run before the next change of places, so that there are
    as few as dependences allow.

    Args:
        sources: numbers of the parts that make its operands.
        hosted: whether it runs on the host.
    """
    latest = max(sources, default=0)
    return latest if latest % 2 == int(hosted) else latest + 1


def warn_of_host(code: str, what: str, error: NkiError, way: str) -> None:
    """Warn that something runs on the host, at the line of the model that is the reason.

    Args:
        code: of the warning, "torch.host" or "jax.host".
        what: the graph, and the operator unless it is the whole graph.
        error: why the device does not run it.
        way: what the user wrote to allow it.
    """
    finding = Finding(
        code,
        "warning",
        f"{what} runs on the host: {error.message}",
        f"what cannot be compiled runs on the host if {way} asks for that",
        "docs/pytorch.md" if code == "torch.host" else "docs/jax.md",
        error.fix or "remove the operator from the model",
        error.location,
        {},
    )
    warn(finding)
