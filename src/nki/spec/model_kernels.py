"""The kernels of a model in its program: where each begins and ends, and which parts of the model it computes."""

from __future__ import annotations

from dataclasses import dataclass

from nki.core.origin import Origin


@dataclass(frozen=True, slots=True)
class KernelPart:
    """What a kernel computes for one part of a model.

    Attributes:
        origin: the part.
        work: its predicted work, in ps as if nothing else ran; the kernel's time is shared in proportion to it.
        reads, writes: predicted bytes from and to device memory; those of the kernel are shared in proportion to them.
    """

    origin: Origin
    work: int
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a kernel in the program of a core.

    Attributes:
        name: of the kernel; calls of the same one have the same.
        first, after: positions of its instructions in the walk of the program, bodies of loops once.
        parts: that it computes; () for what belongs to no part of a model.
    """

    name: str
    first: int
    after: int
    parts: tuple[KernelPart, ...] = ()


CoreKernels = tuple[KernelCall, ...]
"""The kernels of one core, in the order of its program."""


def shares(weights: list[int]) -> list[float]:
    """Parts of a whole in proportion to weights, equal ones if all weights are 0."""
    total = sum(weights)
    return [weight / total if total else 1.0 / len(weights) for weight in weights]
