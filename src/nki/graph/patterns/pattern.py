"""What a pattern is: what it recognises in a model, and the kernel that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nki.graph.ir import Op, Value
from nki.graph.passes.rewriter import Rewriter
from nki.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Match:
    """A part of a model that a kernel can compute.

    Attributes:
        inputs: the kernel's tensors, in order.
        outputs: values of the model that the kernel returns, in order: results of the operation that was looked at.
        facts: further arguments of the kernel by name: numbers, truth values and strings.
        finish: makes values of the outputs' types of what the kernel returns, where that has other shapes.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[Rewriter, Sequence[Value]], Sequence[Value]] | None = None


Matcher = Callable[[Rewriter, Op], "Match | None"]
"""Looks at an operation and, through `Rewriter.maker`, at what makes its operands. It may add operations, such as
transposes of the inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A kernel for every part of a model that a matcher finds.

    Attributes:
        name: by which reports list it and users choose it.
        match: finds the parts.
        kernel: computes one; it returns what it replaces.
        version: of the pattern; another one is another pattern for what is kept of compiled models. The distribution's
            version and the code of both functions count as well.
    """

    name: str
    match: Matcher
    kernel: Kernel
    version: str = ""
