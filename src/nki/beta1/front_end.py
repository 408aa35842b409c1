"""The front end of the first NKI: Python whose values are tiles, on the instructions of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nki.language as nl
from nki.beta1 import typing
from nki.beta1.compiler import AS_WRITTEN, AUTO_ALLOC
from nki.beta1.errors import refused
from nki.beta1.language.transfer import store
from nki.beta1.tensors.scalar import out_of_scope
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.grid import GridAxis
from nki.beta1.tracing.outputs import annotations_of, check_shape, wrong_outputs
from nki.beta1.tracing.session import in_session, session
from nki.compiler import CompileConfig
from nki.core.errors import FrontendError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.frontend.foreign import map_tree
from nki.frontend.host import HostArray
from nki.frontend.protocol import FrontEnd, Place
from nki.frontend.python_errors import spelled
from nki.frontend.trace import Tracer
from nki.frontend.values import Arguments, Parameters, SeeArray, bind, map_leaves
from nki.spec.rule import Finding
from nki.spec.sink import current_sink, with_sink


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
        annotations = annotations_of(function)
        typing.teach(function.__globals__)

        def make(host: HostArray, name: str) -> Any:
            check_shape(annotations.get(name), name, host.array.shape)
            return Tensor.of(tracer.input(host.array.shape, host.dtype, name, lambda buffer: place(buffer, host)))

        args, kwargs = arguments.build(make)
        with session(tracer, self.grid) as running:
            running.auto_alloc = getattr(function, AUTO_ALLOC, False)
            results = running.programs.run(lambda: tracer.run(function, args, kwargs, self.spell))
            tensors: list[NkiTensor] = []
            returned = with_sink(tracer, lambda: map_leaves(results[0], lambda value: _returned(value, tensors)))
            running.finish()
            running.report(wrong_outputs(function, tensors, tracer))
        return returned

    def spell(
        self, problem: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Exception:
        if isinstance(problem, FrontendError) and problem.code == "tensor.scope":
            return out_of_scope("a tensor was made in a loop that has ended", problem.location)
        return spelled(problem, function, args, kwargs)

    def config(self, function: Callable[..., Any]) -> CompileConfig:
        """Tensors that do not fit wait elsewhere, as the old compiler had it, unless the kernel is left as written."""
        return CompileConfig(spill=not getattr(function, AS_WRITTEN, False))

    def inside(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A part of the kernel that calls it; one of today gets tensors of today back.

        Raises:
            Beta1Error: a grid (``beta1.nested_kernel_with_spmd_grid``), or a loop of the device around it
                (``beta1.inside_device_loop``).
        """
        in_another_kernel(function.__name__, self.grid)
        typing.teach(function.__globals__)
        bind(function, args, kwargs, function.__name__)
        if in_session():
            return function(*args, **kwargs)
        with session(_tracer(function.__name__), ()) as running:
            running.auto_alloc = getattr(function, AUTO_ALLOC, False)
            args, kwargs = map_tree((args, dict(kwargs)), _taken)
            result = running.programs.run(lambda: function(*args, **kwargs))[0]
            returned = map_tree(result, _given)
            running.finish()
        return returned


def _taken(value: Any) -> Any:
    return Tensor.of(value) if isinstance(value, NkiTensor) else value


def _given(value: Any) -> Any:
    """Tiles stay on chip: the kernel that gets them goes on with them."""
    return value.elements() if isinstance(value, Tensor) else value


def _tracer(name: str) -> Tracer:
    """The trace of the kernel of today that calls the kernel `name`."""
    sink = current_sink(name)
    assert isinstance(sink, Tracer), "kernels are traced by it alone"
    if sink.in_device_loop:
        raise refused(
            "inside_device_loop",
            f"{name}, a kernel of the first NKI, is called in a loop of the device",
            "call it in a Python loop, such as `for i in range(n):`, or rewrite it with `nki migrate`",
            rule="loops of the first NKI are unrolled",
        )
    return sink


def in_another_kernel(name: str, grid: tuple[GridAxis, ...]) -> None:
    """Raise Beta1Error if a kernel that another one calls has a grid (``beta1.nested_kernel_with_spmd_grid``)."""
    if not grid:
        return
    sizes = ", ".join(str(axis.size) for axis in grid)
    raise refused(
        "nested_kernel_with_spmd_grid",
        f"{name}[{sizes}] is called in another kernel",
        f"write {name}(...) in a loop, and pass what each program computes as an argument",
        rule="calling a kernel with an SPMD grid inside another kernel is not supported",
    )


def _returned(value: Any, tensors: list[NkiTensor]) -> Any:
    """What a kernel returns, as today's kernels return it; tensors are noted."""
    if not isinstance(value, Tensor):
        return value
    made = _whole(value)
    tensors.append(made)
    return made


def _whole(tensor: Tensor) -> NkiTensor:
    """A tensor in HBM; a tile that a kernel returns is stored to one."""
    if not tensor.on_chip:
        return tensor.elements()
    made = nl.ndarray(tensor.shape, tensor.dtype, MemoryRegion.shared_hbm)
    store(Tensor.of(made), tensor)
    return made
