"""The objects that ``@nki.jit`` and ``nki.simulate`` return."""

from __future__ import annotations

import contextlib
import difflib
import functools
import operator
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from nki.compiler import CompileConfig, SpecializationConfig
from nki.core.errors import LaunchError
from nki.core.shown import one_line, shown
from nki.core.source import here
from nki.driver.call import call
from nki.driver.compiled import Cache
from nki.driver.derivative import Backward, Derivative, Forward, derivative_of
from nki.driver.frameworks import declare, framework_of
from nki.driver.launch import Launch
from nki.driver.measure import profile_of_call
from nki.frontend.reloaded_modules import loading_of
from nki.options import API_VERSIONS
from nki.report import Report
from nki.spec.rule import Finding
from nki.spec.schedule import named_edges
from nki.spec.sink import Sink, active_sink

if TYPE_CHECKING:
    from nki.profiling.record import Profile

# Keywords of older decorators, with what became of them; None: it has no effect here.
_OLD_KEYWORDS: dict[str, str | None] = {
    "platform_target": "set NEURON_PLATFORM_TARGET_OVERRIDE",
    "mode": "call nki.simulate(kernel), or set NKI_SIMULATOR=1",
    "debug_kernel": None,
    "show_compiler_tb": None,
    "experimental_flags": None,
    "additional_compile_opt": None,
    "grid": "launch the kernel with kernel[2](...)",
}

_KEYWORDS = ("compile_config", "specialization_config", "api")
_GRIDS = ("lnc", "num_cores", "num_programs", "spmd_grid")
"""What other frameworks call the number of programs, which a launch says here."""

P = ParamSpec("P")
R = TypeVar("R")
"""Parameters of the kernel's function, which a call of the kernel takes as well."""


class Kernel(Generic[P]):
    """A kernel: call it, or ``kernel[lnc]`` first to choose the number of cores.

    Attributes:
        func: the undecorated function.
        report: how the last call's result was produced.
        cache: its compiled programs; kernels on other numbers of cores share it.
        derivative: what `defvjp` was given; None if it was not called.
    """

    def __init__(
        self, launch: Launch | Callable[P, Any], cache: Cache | None = None, derivative: Derivative | None = None
    ) -> None:
        if not isinstance(launch, Launch):
            launch = Launch(_checked_function(launch))
        functools.update_wrapper(self, launch.function)
        self.func = launch.function
        self.report: Report | None = None
        self._profiled: tuple[Report, Profile] | None = None
        self._launch = launch
        self.cache: Cache = {} if cache is None else cache
        self.derivative = derivative
        self._loading = loading_of(self.func)

    def __getitem__(self, lnc: Any) -> Self:
        """This kernel on `lnc` cores."""
        made: Self = launched_on(self, self.grid_constant(lnc))
        return made

    def grid_constant(self, grid: Any) -> Any:
        """What stands in ``kernel[...]`` as numbers and tuples of Python, which `on` takes."""
        return _checked_grid(self.func.__name__, grid)

    def on(self, constant: Any) -> Kernel[P]:
        """The kernel on the grid that `grid_constant` was given."""
        return self._launched(lnc=constant)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        framework = framework_of(args, kwargs)
        return self.run(args, kwargs) if framework is None else framework.call(self, args, kwargs)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call on arrays of the host, or in the body of another kernel, with no framework asked."""
        self._loading.tell_if_again()
        sink = active_sink()
        if sink is not None:
            return self._inside(sink, args, kwargs)
        result, self.report = call(self._launch, args, kwargs, self.cache)
        return result

    def with_schedule(self, edges: list[tuple[str, str | list[str]]]) -> Kernel[P]:
        """This kernel with dependencies between its instructions, by their names (``name=``).

        Args:
            edges: ``(consumer, producer)`` or ``(consumer, [producer, ...])``: the consumer runs after every producer.
                They replace those of an earlier schedule.

        Raises:
            LaunchError: another form (``schedule.form``); and, when the kernel is called, a name that no instruction
                has (``schedule.unknown-name``) or two have (``schedule.ambiguous-name``), or an edge into or out of a
                device loop (``schedule.loop``).
            ExecutionError: when the kernel is called, if the order of the program breaks an edge
                (``schedule.order``).
        """
        return self._launched(schedule=named_edges(edges))

    def defvjp(self, forward: Forward | None, backward: Backward) -> Kernel[P]:
        """Say what the kernel's derivative is, in the words of `jax.custom_vjp`; returns the kernel itself.

        Calls with tensors of PyTorch that require gradients, and calls under `jax.grad` and `jax.vjp`, use it from here
        on, as do ``kernel[2]`` and the other kernels that are made of this one later. Calls with NumPy arrays and calls
        in other kernels do not. Both functions get arrays of the framework of the call, and call kernels with them.

        Args:
            forward: called with the arguments of the kernel; returns ``(result, residuals)``, where `residuals` is any
                tree of arrays and constants. None: the kernel itself, and as residuals a tuple of the arguments that
                hold arrays.
            backward: called as ``backward(residuals, gradient, **constants)``. `gradient` has the form of the result,
                with None for integers. It returns a tuple with the gradient of each argument that holds arrays, in the
                order of the parameters, or a dictionary of them by name; None, and a name that is missing, stand for
                zeros. `constants` are the arguments of the call without arrays, defaults included: those that
                `backward` has parameters for, or all if it collects keywords.

        Raises:
            LaunchError: functions that do not fit ("jit.defvjp"); in a derivative, gradients that do not fit
                ("jit.gradients").
        """
        self.derivative = derivative_of(self.func, forward, backward)
        declare("torch", "nki.interop.torch.framework:FRAMEWORK")  # JAX is declared by `import nki`
        return self

    @property
    def profile(self) -> Profile | None:
        """The last call in time on its target, by the timing model; None before the first call."""
        report = self.report
        if report is None:
            return None
        if self._profiled is None or self._profiled[0] is not report:
            self._profiled = report, profile_of_call(report, self._launch)
        return self._profiled[1]

    def launch(self) -> Launch:
        """What the driver needs to know."""
        return self._launch

    def simulated(self) -> Kernel[P]:
        """This kernel, run eagerly."""
        return self._launched(eager=True)

    def _launched(self, **changes: Any) -> Kernel[P]:
        """This kernel, launched in another way."""
        return Kernel(replace(self._launch, **changes), self.cache, self.derivative)

    def _inside(self, sink: Sink, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call from another kernel becomes part of it, and keeps the NKI version that it was written for."""
        self._check_nested(sink)
        outer = sink.options
        sink.options = replace(outer, api=self._launch.api or outer.api)
        try:
            return self._launch.front_end.inside(self.func, args, kwargs)
        finally:
            sink.options = outer

    def _check_nested(self, sink: Sink) -> None:
        name = self.func.__name__
        if self._launch.schedule:
            sink.report(
                _nested("schedule.nested", f"the schedule of {name} does not count inside another kernel", "schedule")
            )
        config = self._launch.compile_config
        if config is None or config == sink.config:
            return
        message = f"{name} has {config}, the kernel that calls it has {sink.config}"
        if not sink.config_override:
            raise LaunchError(
                "jit.nested-config",
                message,
                rule="a kernel that is called by another one has the same settings, or none",
                source="nki/api/nki.compiler SpecializationConfig (NKI 0.7)",
                fix="give both the same compile_config, or the calling kernel "
                "specialization_config=SpecializationConfig(allow_nested_config_override=True)",
            )
        sink.report(_nested("jit.nested-override", message, "compile_config"))

    def __repr__(self) -> str:
        grid = f"[{self._launch.lnc}]" if self._launch.lnc else ""
        return f"<nki kernel {self.func.__qualname__}{grid}>"


def launched_on(kernel: Any, constant: Any) -> Any:
    """The kernel on a grid; frameworks that trace Python put a function of their own in the place of this one."""
    return kernel.on(constant)


class _Older(TypedDict, total=False):
    """Keywords of older versions, as type checkers see them."""

    platform_target: Any
    mode: Any
    debug_kernel: Any
    show_compiler_tb: Any
    experimental_flags: Any
    additional_compile_opt: Any
    grid: Any


@overload
def jit(
    fn: Callable[P, Any],
    *,
    compile_config: CompileConfig | None = ...,
    specialization_config: SpecializationConfig | None = ...,
    api: str | None = ...,
    **kwargs: Unpack[_Older],
) -> Kernel[P]: ...
@overload
def jit(
    fn: None = None,
    *,
    compile_config: CompileConfig | None = ...,
    specialization_config: SpecializationConfig | None = ...,
    api: str | None = ...,
    **kwargs: Unpack[_Older],
) -> Callable[[Callable[P, Any]], Kernel[P]]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    compile_config: CompileConfig | None = None,
    specialization_config: SpecializationConfig | None = None,
    api: str | None = None,
    **kwargs: Any,
) -> Any:
    """Make a kernel of a function: ``@nki.jit`` or ``@nki.jit()``.

    Calling the kernel with NumPy, torch (CPU) or JAX arrays checks it for the target, compiles it and runs it; results
    come back in the caller's kind. ``kernel[2](...)`` runs it on two cores.

    Args:
        fn: the function.
        compile_config: settings of the compiler; one that has no effect here says so in a warning and in the report.
        specialization_config: settings of the trace.
        api: the NKI version that the kernel was written for ("0.3" to "0.7"), where versions mean different things
            (docs/api-versions.md); it comes before NKI_API_VERSION.
        kwargs: keywords of older versions, each with a DeprecationWarning.
    """
    target, grid = _old_keywords(kwargs)
    _check_kind("compile_config", compile_config, CompileConfig)
    _check_kind("specialization_config", specialization_config, SpecializationConfig)
    version = _checked_version(api)
    for statement in compile_config.without_effect() if compile_config else ():
        warnings.warn(f"nki.jit: {statement}", UserWarning, stacklevel=2)

    def decorate(function: Callable[..., Any]) -> Kernel[...]:
        function = _checked_function(function)
        return Kernel(
            Launch(
                function,
                lnc=None if grid is None else _checked_grid(function.__name__, grid),
                target=target,
                api=version,
                compile_config=compile_config,
                specialization_config=specialization_config,
            )
        )

    return decorate if fn is None else decorate(fn)


def alone(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of functions that take a kernel alone: what they return is called with the arguments of the kernel."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) <= 1:
            return function(*args, **kwargs)
        caller, name = f"nki.{function.__name__}", getattr(args[0], "__name__", "kernel")
        raise LaunchError(
            "jit.called",
            f"{caller} got {name} and {len(args) - 1} more argument{'' if len(args) == 2 else 's'}",
            rule=f"{caller} takes the kernel alone, and what it returns is called",
            fix=f"write {caller}({name})(...), with the arguments of the kernel in the second parentheses",
        )

    return call


@alone
def simulate(kernel: Callable[P, Any]) -> Kernel[P]:
    """The kernel in eager mode: every instruction runs as Python reaches it, so print, pdb and breakpoints work.

    Args:
        kernel: a kernel, ``kernel[lnc]``, or a plain function. The result can be subscripted as well.

    Raises:
        LaunchError: no kernel (``jit.function``), or its arguments as well (``jit.called``).
    """
    return kernel_of("nki.simulate", kernel).simulated()


def kernel_of(caller: str, kernel: Callable[P, Any]) -> Kernel[P]:
    """The kernel that a function of this package got, whose result is called with the kernel's arguments.

    Raises:
        LaunchError: it is none (``jit.function``).
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not _is_function(kernel):
        raise LaunchError(
            "jit.function",
            f"{caller} got {shown(kernel)}",
            rule="a kernel is a Python function",
            fix=f"pass the kernel without calling it: {caller}(kernel)(...)",
        )
    return Kernel(kernel)


def _is_function(value: Any) -> bool:
    return callable(value) and hasattr(value, "__code__")


def _checked_function(function: Any) -> Callable[..., Any]:
    if _is_function(function):
        checked: Callable[..., Any] = function
        return checked
    raise LaunchError(
        "jit.function",
        f"nki.jit got {shown(function)}",
        rule="a kernel is a Python function",
        fix="decorate a function defined with def",
    )


def _checked_grid(name: str, grid: Any) -> int:
    """The number of cores: an int, or the only item of a sequence."""
    number = grid[0] if isinstance(grid, (tuple, list)) and len(grid) == 1 else grid
    with contextlib.suppress(TypeError):
        if not isinstance(number, bool) and (cores := operator.index(number)) > 0:
            return cores
    raise LaunchError(
        "launch.grid",
        f"{name} is launched on the grid {one_line(repr(grid))}",
        rule="a grid is one positive int, the number of cores",
        fix="write kernel[2](...), and loop over tiles in the kernel",
    )


def _checked_version(api: str | None) -> str:
    if api is not None and api not in API_VERSIONS:
        raise LaunchError(
            "jit.api",
            f"nki.jit(api={api!r})",
            rule=f"api is one of {', '.join(API_VERSIONS)}",
            fix="omit api, or write the version as text, for example api='0.5'",
        )
    return api or ""


def _check_kind(name: str, value: Any, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise LaunchError(
            "jit.config",
            f"nki.jit({name}={value!r})"[:160],
            rule=f"{name} is an nki.compiler.{kind.__name__}",
            source="nki/api/nki.compiler (NKI 0.7)",
            fix=f"write {name}=nki.compiler.{kind.__name__}(...)",
        )


def _nested(code: str, message: str, what: str) -> Finding:
    return Finding(
        code,
        "warning",
        message,
        "the kernel that is launched decides for all that it calls",
        "nki/api/nki.compiler (NKI 0.7)",
        f"give the launched kernel the {what}",
        here(),
        {},
    )


def _argument_fix(name: str) -> str:
    if name in _GRIDS:
        return "write @nki.jit, and launch the kernel on two cores with kernel[2](...)"
    close = difflib.get_close_matches(name, _KEYWORDS, n=1)
    return f"write {close[0]}=" if close else "write @nki.jit"


def _old_keywords(kwargs: dict[str, Any]) -> tuple[str, Any]:
    """The target and the grid that they name."""
    for name in kwargs:
        if name not in _OLD_KEYWORDS:
            raise LaunchError("jit.argument", f"nki.jit has no argument {name!r}", fix=_argument_fix(name))
        instead = _OLD_KEYWORDS[name]
        warnings.warn(
            f"nki.jit: argument {name} is deprecated; {instead or 'it has no effect and can be removed'}",
            DeprecationWarning,
            stacklevel=3,
        )
    return str(kwargs.get("platform_target") or ""), kwargs.get("grid")
