"""What a front end is: it makes programs of kernels that are written in one language.

The driver knows no language. In a call it asks the front end of the launch what is wrong with the source (`check`) and
which arguments are tensors (`bind`), and has it run the body once per core (`trace`). The front end tells errors of the
body in its words (`spell`), and makes a call in the body of another kernel a part of that one (`inside`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nki.compiler import CompileConfig
from nki.core.tensor import Buffer, Storage
from nki.frontend.host import HostArray
from nki.frontend.trace import Tracer
from nki.frontend.values import Arguments, SeeArray
from nki.spec.rule import Finding

Place = Callable[[Buffer, HostArray], Storage]
"""The storage of the buffer that stands for an array of the call."""


class FrontEnd(Protocol):
    """A language of kernels. Its objects have values alone: equal ones make the same program, and can be pickled.

    `nki.frontend.nki` is the language of `nki.language` and `nki.isa`, and the one to derive others from. A kernel gets
    another one by its launch: ``Kernel(Launch(function, front_end=...))``.
    """

    def check(self, function: Callable[..., Any]) -> tuple[Finding, ...]:
        """What is wrong with the source of a kernel and of what it calls; nothing is run. An error refuses the call."""

    def bind(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], see: SeeArray
    ) -> Arguments:
        """The arguments of a call by parameter, arrays apart from constants, whose values are part of the program.

        Args:
            see: makes a host array of an array of a framework.

        Raises:
            ArgumentError: the call does not fit.
        """

    def trace(self, function: Callable[..., Any], tracer: Tracer, arguments: Arguments, place: Place) -> Any:
        """Run the body with tensors for the arrays; returns what it returns.

        `tracer.input` makes a tensor of an array, `tracer.run` runs Python with the tracer as the place that
        instructions go to. Locations of instructions end at the function that is given to `tracer.run`.
        """

    def spell(
        self, problem: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Exception:
        """The error to raise for one that the body raised: in the words of the language, or as it is.

        Args:
            function, args, kwargs: what `tracer.run` was given.
        """

    def inside(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A call in the body of another kernel, which becomes part of that kernel's trace."""

    def config(self, function: Callable[..., Any]) -> CompileConfig:
        """The settings of the compiler for a kernel that is launched with none."""
        return CompileConfig()
