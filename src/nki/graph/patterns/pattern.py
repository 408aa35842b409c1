"""What a pattern is: what it recognises in a model, and the kernel that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nki.core.errors import NkiError
from nki.graph.ir import Op, Value
from nki.graph.passes.rewriter import Rewriter
from nki.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Match:
    """A part of a model that a kernel can compute.

    Attributes:
        inputs: the kernel's tensors, in order.
        outputs: values of the model that the kernel returns, in order: results of the operation that was looked at,
            then perhaps values that were made before it; what uses those is made after it then.
        facts: further arguments of the kernel by name: numbers, truth values and strings.
        finish: makes values of the outputs' types of what the kernel returns, where that has other shapes.
        beside: values that stay, and share values in between with the outputs, as a result of a forward pass does with
            gradients. Whether the kernel is faster is asked of both together, so that what they share is no reason to
            make it.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[Rewriter, Sequence[Value]], Sequence[Value]] | None = None
    beside: tuple[Value, ...] = ()


class NearMiss(Exception):
    """Raised by a matcher: the operation is what it looks for, but for a reason that the model's author should know.

    The reason is a part of a sentence with the actual numbers: ``raise NearMiss("heads of 256, the kernel has 128")``.
    Reports list it, and the operation stays.
    """


Matcher = Callable[[Rewriter, Op], "Match | None"]
"""Looks at an operation and, through `Rewriter.maker`, at what makes its operands. It may add operations, such as
transposes of the inputs, which are taken out again if there is no match. It may raise `NearMiss`."""

Choose = Literal["always", "faster"]
"""When a pattern's kernel is used: wherever it can be, or where the timing model says that it is faster."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Pattern:
    """A kernel for every part of a model that a matcher finds.

    Attributes:
        name: by which reports list it and users choose it.
        match: finds the parts.
        kernel: computes one; it returns what it replaces.
        version: of the pattern; another one is another pattern for what is kept of compiled models. The distribution's
            version and the code of both functions count as well.
        choose: "always" uses the kernel wherever the matcher finds something. "faster" asks the timing model, and
            leaves parts as they are that kernels of the graph compiler compute in less time.
        refuses: errors of the kernel that say that it does not take such arguments. Reports list what they say, and
            the part stays.
    """

    name: str
    match: Matcher
    kernel: Kernel
    version: str = ""
    choose: Choose = "always"
    refuses: tuple[type[NkiError], ...] = ()
