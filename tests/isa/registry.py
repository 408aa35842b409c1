"""Examples that every instruction and every rule must have: one that is legal, and one that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Legal:
    """A kernel that uses an instruction legally.

    Attributes:
        instruction: its name.
        kernel: plain function that takes the arrays of `arguments` and returns an HBM tensor (or a tuple).
        arguments: makes the host arguments.
        expected: from the arguments, the result by an independent reference; None if the values are tested elsewhere.
        targets: where it is legal.
        rtol, atol: tolerance of the comparison; 0 means equal.
        lnc: number of cores.
    """

    instruction: str
    kernel: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    expected: Callable[..., Any] | None = None
    targets: tuple[str, ...] = ("trn1", "trn2", "trn3")
    rtol: float = 0.0
    atol: float = 0.0
    lnc: int | None = None


@dataclass(frozen=True)
class Breaks:
    """A kernel that breaks one rule, and is otherwise legal.

    Attributes:
        code: full code, for example "tensor_tensor.shapes".
        target: where it is refused.
    """

    code: str
    kernel: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    target: str = "trn2"
    lnc: int | None = None
