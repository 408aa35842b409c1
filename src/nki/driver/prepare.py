"""What decides about a call before anything is traced: options, target, the source, the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

from nki.driver.compiled import Cache
from nki.driver.launch import Launch, bound_arguments, check_lnc, launch_options
from nki.frontend.check.language_check import raise_errors
from nki.frontend.host import take
from nki.frontend.values import Arguments, SeeArray
from nki.options import Options, from_environment, stated
from nki.spec.rule import Finding
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target

Mode = Literal["compiled", "eager"]


class Launchable(Protocol):
    """A kernel, as far as the driver knows one: `nki.jit` makes them."""

    @property
    def cache(self) -> Cache:
        """Where its compiled programs are remembered."""

    def launch(self) -> Launch:
        """How it is launched."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that may run: nothing is wrong with its source, and its arguments fit.

    Attributes:
        launch: the kernel and how it was launched.
        options: of this call, with what the kernel says about itself.
        target: what it is checked, compiled and run for.
        findings: warnings of the source check.
        arguments: by parameter, arrays of the host apart from constants.
        mode: whether it is compiled, or runs instruction by instruction.
        cache: where compiled programs of the kernel are remembered.
    """

    launch: Launch
    options: Options
    target: Target
    findings: tuple[Finding, ...]
    arguments: Arguments
    mode: Mode
    cache: Cache

    @property
    def cores(self) -> int:
        """How many cores run it."""
        return self.launch.cores


def prepare(
    kernel: Launchable | Launch,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Options | None = None,
    mode: Mode | None = None,
    *,
    target: str = "",
    cache: Cache | None = None,
    see: SeeArray = take,
) -> Prepared:
    """Everything that a call decides before it traces or looks up anything.

    Args:
        kernel: a kernel, whose compiled programs are remembered with it, or only a launch.
        args, kwargs: of the call.
        options: those of the environment unless others are given.
        mode: "compiled" or "eager"; None for what the launch and the options say.
        target: a name that comes before those of the options and of the decorator.
        cache: where compiled programs are remembered, in place of the kernel's own.
        see: makes a host array of an array of a framework; see `nki.frontend.values.Arguments`.

    Raises:
        UsageError: a variable of the environment or the name of a target makes no sense.
        LaunchError: the target has not as many cores (``launch.lnc``).
        FrontendError: the source cannot be traced.
        ArgumentError: the call does not fit the kernel, or an argument is nothing that a kernel takes.
    """
    launch = kernel if isinstance(kernel, Launch) else kernel.launch()
    if cache is None:
        cache = {} if isinstance(kernel, Launch) else kernel.cache
    options, chosen = settled(launch, options, target)
    check_lnc(launch, chosen)
    findings = checked(launch, options)
    arguments = bound_arguments(launch, args, kwargs, see)
    if mode is None:
        mode = "eager" if launch.eager or options.simulator else "compiled"
    return Prepared(launch, options, chosen, findings, arguments, mode, cache)


def settled(launch: Launch, options: Options | None = None, target: str = "") -> tuple[Options, Target]:
    """The options and the target of a launch. See `prepare` for the arguments.

    What the kernel says about itself comes before what the environment says about all, but for the target, which is the
    first that this call, the environment and the decorator name.
    """
    options = launch_options(launch, from_environment() if options is None else options)
    return options, chosen_target(target, options.target, launch.target)


def checked(launch: Launch, options: Options) -> tuple[Finding, ...]:
    """The warnings of the source check. Raises FrontendError for its first error."""
    return raise_errors(launch.front_end.check(launch.function), options.disabled_rules)


def chosen_target(*names: str) -> Target:
    """The first target that has a name; the default one if none has. UsageError for a name that is unknown."""
    return load_target(next(filter(None, names), DEFAULT_TARGET))


def default_options(kept: Mapping[str, Any] = MappingProxyType({})) -> Options:
    """The options where nobody gives others: the environment's.

    Args:
        kept: those of a model's file, which count where the environment says nothing.
    """
    options, said = from_environment(), stated()
    return replace(options, **{name: value for name, value in kept.items() if name not in said})


def host_target() -> Target:
    """The target of questions outside of kernels: the environment's."""
    return chosen_target(from_environment().target)
