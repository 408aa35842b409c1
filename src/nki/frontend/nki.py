"""The front end of NKI itself: Python that calls `nki.language` and `nki.isa` on tensors in HBM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nki.core.nki_tensor import NkiTensor
from nki.frontend.check.language_check import check_function
from nki.frontend.foreign import called
from nki.frontend.host import HostArray
from nki.frontend.protocol import FrontEnd, Place
from nki.frontend.python_errors import spelled
from nki.frontend.trace import Tracer
from nki.frontend.values import Arguments, Parameters, SeeArray, bind
from nki.spec.rule import Finding


@dataclass(frozen=True, slots=True)
class NkiFrontEnd(FrontEnd):
    """Parameters of the function are arguments of the call; its results are tensors in HBM."""

    def check(self, function: Callable[..., Any]) -> tuple[Finding, ...]:
        return check_function(function)

    def bind(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], see: SeeArray
    ) -> Arguments:
        return Arguments(bind(function, args, kwargs, function.__name__), Parameters(function), see)

    def trace(self, function: Callable[..., Any], tracer: Tracer, arguments: Arguments, place: Place) -> Any:
        def make(host: HostArray, name: str) -> NkiTensor:
            return tracer.input(host.array.shape, host.dtype, name, lambda buffer: place(buffer, host))

        args, kwargs = arguments.build(make)
        return tracer.run(function, args, kwargs, self.spell)

    def spell(
        self, problem: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Exception:
        return spelled(problem, function, args, kwargs)

    def inside(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bind(function, args, kwargs, function.__name__)
        return called(function, args, kwargs)


NKI = NkiFrontEnd()
