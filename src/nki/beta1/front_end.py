"""The front end of the first NKI: Python whose values are tiles, on the instructions of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nki.language as nl
from nki.beta1.compiler import AUTO_ALLOC
from nki.beta1.language.transfer import store
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.grid import GridAxis
from nki.beta1.tracing.session import session
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.frontend.host import HostArray
from nki.frontend.protocol import FrontEnd, Place
from nki.frontend.python_errors import spelled
from nki.frontend.trace import Tracer
from nki.frontend.values import Arguments, Parameters, SeeArray, bind, map_leaves
from nki.spec.rule import Finding
from nki.spec.sink import with_sink


@dataclass(frozen=True, slots=True)
class Beta1FrontEnd(FrontEnd):
    """Programs of a grid run one after another on each core, and share the tensors in shared HBM.

    Attributes:
        grid: the axes of ``kernel[...]``; empty without.
    """

    grid: tuple[GridAxis, ...] = ()

    def check(self, function: Callable[..., Any]) -> tuple[Finding, ...]:
        return ()

    def bind(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], see: SeeArray
    ) -> Arguments:
        return Arguments(bind(function, args, kwargs, function.__name__), Parameters(function), see)

    def trace(self, function: Callable[..., Any], tracer: Tracer, arguments: Arguments, place: Place) -> Any:
        def make(host: HostArray, name: str) -> Any:
            return Tensor.of(tracer.input(host.array.shape, host.dtype, name, lambda buffer: place(buffer, host)))

        args, kwargs = arguments.build(make)
        with session(tracer, self.grid) as running:
            running.auto_alloc = getattr(function, AUTO_ALLOC, False)
            results = running.programs.run(lambda: tracer.run(function, args, kwargs, self.spell))
            returned = with_sink(tracer, lambda: map_leaves(results[0], _returned))
            running.finish()
        return returned

    def spell(
        self, problem: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Exception:
        return spelled(problem, function, args, kwargs)

    def inside(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bind(function, args, kwargs, function.__name__)
        return function(*args, **kwargs)


def _returned(value: Any) -> Any:
    return _whole(value) if isinstance(value, Tensor) else value


def _whole(tensor: Tensor) -> NkiTensor:
    """A tensor in HBM; a tile that a kernel returns is stored to one."""
    if not tensor.on_chip:
        return tensor.elements()
    made = nl.ndarray(tensor.shape, tensor.dtype, MemoryRegion.shared_hbm)
    store(Tensor.of(made), tensor)
    return made
