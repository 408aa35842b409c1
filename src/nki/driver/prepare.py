"""What decides about a call before anything is traced: options, target, the source, the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from nki.core.one_maker import OneMaker
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

_new_tuple = tuple.__new__
"""Makes a named tuple in half the time."""
_MOST_SETTLED = 16
"""Records of options that a launch is settled for at the same time; the environment's stay the same object."""


class Launchable(Protocol):
    """A kernel, as far as the driver knows one: `nki.jit` makes them."""

    @property
    def cache(self) -> Cache:
        """Where its compiled programs are remembered."""

    def launch(self) -> Launch:
        """How it is launched."""


class Setting:
    """What a launch comes to under some options, whatever its arguments are.

    Equal ones lead to the same programs; the hash is taken once, because every call of a kernel looks its programs up.

    Attributes:
        options: of the call, with what the kernel says about itself.
        target: what it is checked, compiled and run for.
        findings: warnings of the source check.
        language: what a trace depends on beside the function and its arguments; see `Launch.references`.
    """

    __slots__ = ("_hash", "_identity", "_wanted", "findings", "language", "options", "target")

    def __init__(self, launch: Launch, wanted: Options, name: str = "") -> None:
        """See `prepare`, of which these are options and target, for the errors."""
        self._wanted = wanted  # which keeps its identity from becoming that of another record
        self.options, self.target = settled(launch, wanted, name)
        check_lnc(launch, self.target)
        self.findings = checked(launch, self.options)
        self.language = launch.references
        self._identity = (self.target.name, launch.lnc, launch.schedule, self.options)
        self._hash = hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setting) and self._identity == other._identity


class Prepared(NamedTuple):
    """A call that may run: nothing is wrong with its source, and its arguments fit.

    Attributes:
        launch: the kernel and how it was launched.
        setting: options, target, and what the source check found.
        arguments: by parameter, arrays of the host apart from constants.
        mode: whether it is compiled, or runs instruction by instruction.
        cache: where compiled programs of the kernel are remembered.
    """

    launch: Launch
    setting: Setting
    arguments: Arguments
    mode: Mode
    cache: Cache

    @property
    def options(self) -> Options:
        """Options of this call, with what the kernel says about itself."""
        return self.setting.options

    @property
    def target(self) -> Target:
        """What it is checked, compiled and run for."""
        return self.setting.target

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings of the source check."""
        return self.setting.findings

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
        UsageError: a variable of the environment makes no sense.
        TargetError: there is no such target.
        LaunchError: the target has not as many cores (``launch.lnc``).
        FrontendError: the source cannot be traced.
        ArgumentError: the call does not fit the kernel, or an argument is nothing that a kernel takes.
    """
    launch = kernel if isinstance(kernel, Launch) else kernel.launch()
    if cache is None:
        cache = {} if isinstance(kernel, Launch) else kernel.cache
    wanted = from_environment() if options is None else options
    setting = launch.settled.get((id(wanted), target)) or _SETTLING.make(
        (id(launch), id(wanted), target), partial(_setting, launch, wanted, target), share_errors=True
    )
    arguments = bound_arguments(launch, args, kwargs, see)
    if mode is None:
        mode = "eager" if launch.eager or setting.options.simulator else "compiled"
    return _new_tuple(Prepared, (launch, setting, arguments, mode, cache))


_SETTLING = OneMaker()
"""One of the threads that call a new kernel, as ranks do, has its source checked."""


def _setting(launch: Launch, wanted: Options, target: str) -> Setting:
    """Settle a launch, and keep that for its next calls."""
    found = launch.settled.get((id(wanted), target))
    if found is not None:
        return found
    if len(launch.settled) >= _MOST_SETTLED:
        launch.settled.clear()
    found = launch.settled[id(wanted), target] = Setting(launch, wanted, target)
    return found


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
    """The first target that has a name; the default one if none has. TargetError for a name that is unknown."""
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
