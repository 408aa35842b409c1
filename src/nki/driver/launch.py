"""A kernel that is about to run: how it was launched, its arguments, and the trace of its body."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nki.compiler import CompileConfig, SpecializationConfig
from nki.core.collector import paused_collector
from nki.core.errors import LaunchError, NkiError
from nki.core.source import of_function
from nki.core.tensor import Storage
from nki.frontend.host import take
from nki.frontend.nki import NKI
from nki.frontend.protocol import FrontEnd, Place
from nki.frontend.trace import Tracer, attach
from nki.frontend.values import Arguments, SeeArray
from nki.options import Options
from nki.spec.schedule import NamedEdge, add_named_edges
from nki.target.model import Target


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and how to run it.

    Attributes:
        function: the undecorated Python function.
        lnc: logical core count of ``kernel[lnc]``; None if no grid was given.
        eager: run instruction by instruction while the Python body runs.
        target: target of the decorator; the environment overrides it.
        api: NKI version of the decorator, which overrides the environment.
        compile_config, specialization_config: settings of the decorator; None if it has none.
        schedule: edges of ``kernel.with_schedule``, by name: (producer, consumer).
        front_end: the language that the function is written in.
        settled: what `nki.driver.prepare` worked out for it, by options and target, so that it does so once.
    """

    function: Callable[..., Any]
    lnc: int | None = None
    eager: bool = False
    target: str = ""
    api: str = ""
    compile_config: CompileConfig | None = None
    specialization_config: SpecializationConfig | None = None
    schedule: tuple[NamedEdge, ...] = ()
    front_end: FrontEnd = NKI
    settled: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def cores(self) -> int:
        return self.lnc or 1

    @property
    def config(self) -> CompileConfig:
        """The settings of the compiler: the decorator's, or those of the language."""
        return self.compile_config or self.front_end.config(self.function)

    @property
    def references(self) -> tuple[Any, ...]:
        """What a trace depends on beside the function and its arguments: a front end that is not this package's."""
        return () if self.front_end == NKI else (self.front_end,)


def launch_options(launch: Launch, options: Options) -> Options:
    """The options of a call: what the kernel says about itself comes before what the environment says about all."""
    return replace(options, api=launch.api) if launch.api else options


def trace_only(
    launch: Launch,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Target,
    options: Options,
    *,
    collect: bool = True,
) -> list[Tracer]:
    """Trace and verify every core without running; with `collect`, broken rules are kept instead of raised."""
    return trace_results(launch, args, kwargs, target, options, collect=collect)[0]


def trace_results(
    launch: Launch,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Target,
    options: Options,
    *,
    collect: bool = True,
) -> tuple[list[Tracer], Any]:
    """As `trace_only`, and what the kernel returned on the first core, with views in the places of tensors."""
    check_lnc(launch, target)
    options = launch_options(launch, options)
    arguments = bound_arguments(launch, args, kwargs)
    tracers = [tracer_of(launch, target, options, core, collect=collect) for core in range(launch.cores)]
    with paused_collector():
        try:
            results = [trace_body(launch, tracer, arguments, lambda buffer, _: Storage(buffer)) for tracer in tracers]
            add_named_edges([tracer.program for tracer in tracers], launch.schedule)
        except NkiError as error:
            error.found = tuple(finding for tracer in tracers for finding in tracer.findings)
            raise
    return tracers, results[0]


def bound_arguments(
    launch: Launch, args: tuple[Any, ...], kwargs: Mapping[str, Any], see: SeeArray = take
) -> Arguments:
    """What the kernel was called with, by parameter. Raises what the front end does, at the kernel's definition."""
    try:
        return launch.front_end.bind(launch.function, args, kwargs, see)
    except NkiError as error:
        attach(error, of_function(launch.function.__code__))
        raise


def check_lnc(launch: Launch, target: Target) -> None:
    """Raise LaunchError "launch.lnc" if the target runs no kernel on that many cores."""
    if launch.cores not in target.lnc:
        raise LaunchError(
            "launch.lnc",
            f"{launch.name}[{launch.lnc}] asks for {launch.cores} cores",
            rule=f"{target.name} runs a kernel on {' or '.join(str(n) for n in target.lnc)} "
            f"core{'' if target.lnc == (1,) else 's'}",
            source="nki/get-started/about/lnc.rst",
            fix=f"launch it as {launch.name}[{target.lnc[-1]}](...)",
        )


def trace_body(launch: Launch, tracer: Tracer, arguments: Arguments, place: Place, keep: bool = False) -> Any:
    """Run the body with tensors for the arrays; returns the tree of output views (and, kept, their storages)."""
    tracer.program.location = of_function(launch.function.__code__)
    try:
        result = launch.front_end.trace(launch.function, tracer, arguments, place)
        tree = tracer.finish(result)
    except NkiError as error:
        attach(error, tracer.program.location)
        raise
    return (tree, tracer.output_storages(result)) if keep else tree


def tracer_of(launch: Launch, target: Target, options: Options, core: int, **more: Any) -> Tracer:
    """The sink for one core; `more` is for eager runs, see `Tracer`."""
    tracer = Tracer(launch.name, target, options, core=core, cores=launch.cores, grid=launch.lnc is not None, **more)
    tracer.config = launch.compile_config or CompileConfig()
    tracer.config_override = bool(
        launch.specialization_config and launch.specialization_config.allow_nested_config_override
    )
    return tracer
