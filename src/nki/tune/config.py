"""One configuration of a kernel: keyword arguments, the number of cores, settings of the compiler."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import FunctionType
from typing import Any

from nki.compiler import CompileConfig
from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.driver.launch import Launch
from nki.frontend.host import kind_of

_LAUNCH = ("lnc", "compile_config")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Config:
    """One way to launch a kernel: ``nki.Config({"tile": 512}, lnc=2)``.

    A dict means the same: ``{"tile": 512, "lnc": 2}``.

    Attributes:
        arguments: keyword arguments of the kernel; any values but arrays.
        lnc: number of cores; None for that of the kernel.
        compile_config: settings of the compiler; None for those of the kernel.

    Raises:
        LaunchError: a value that cannot be (``tune.config``).
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    lnc: int | None = None
    compile_config: CompileConfig | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, Mapping) or not all(isinstance(name, str) for name in self.arguments):
            raise _wrong(f"arguments={shown(self.arguments)}", "arguments are a dict from names to values")
        for name, value in self.arguments.items():
            if kind_of(value) is not None:
                raise _wrong(f"{name} is an array", "a configuration has constants, arrays are those of the call")
        if self.lnc is not None and (type(self.lnc) is not int or self.lnc < 1):
            raise _wrong(f"lnc={shown(self.lnc)}", "lnc is the number of cores, from 1")
        if self.compile_config is not None and not isinstance(self.compile_config, CompileConfig):
            raise _wrong(f"compile_config={shown(self.compile_config)}", "it is an nki.compiler.CompileConfig")

    @property
    def label(self) -> str:
        """The configuration as text: what tables show and pinned files name."""
        parts = [f"{name}={_text(value)}" for name, value in sorted(self.arguments.items())]
        parts += [] if self.lnc is None else [f"lnc={self.lnc}"]
        if self.compile_config is not None:
            told = [s.partition(":")[0].removeprefix("CompileConfig.") for s in self.compile_config.statements()]
            parts.append(f"compile_config=CompileConfig({', '.join(told)})")
        return ", ".join(parts) or "default"

    def launch(self, base: Launch) -> Launch:
        """The kernel as this configuration launches it."""
        return replace(
            base, lnc=self.lnc or base.lnc, compile_config=self.compile_config or base.compile_config, eager=False
        )


def read_configs(given: Any, function: Callable[..., Any]) -> tuple[Config, ...]:
    """The configurations of a kernel, checked.

    Args:
        given: an iterable of `Config` and dicts.
        function: the kernel's function, whose parameters they set.

    Raises:
        LaunchError: none, one of another kind, two that are equal, or a name that is no parameter (``tune.config``).
    """
    if isinstance(given, Mapping | Config | str) or not isinstance(given, Iterable):
        raise _wrong(f"configs={shown(given)}", "configs is a list of dicts or nki.Config")
    parameters = inspect.signature(function).parameters
    found = tuple(_read(each, parameters) for each in given)
    if not found:
        raise _wrong("configs is empty", "there is at least one configuration")
    labels: set[str] = set()
    for config in found:
        _check_names(config, parameters, function.__name__)
        if config.label in labels:
            raise _wrong(f"{config.label} is there twice", "configurations differ from each other")
        labels.add(config.label)
    return found


def default_of(configs: tuple[Config, ...], function: Callable[..., Any]) -> Config:
    """What the others are compared with: the kernel without any configuration, or the first if it needs one."""
    parameters = inspect.signature(function).parameters
    chosen = {name for config in configs for name in config.arguments}
    needed = [name for name in chosen if name in parameters and parameters[name].default is inspect.Parameter.empty]
    return configs[0] if needed else Config()


def _read(given: Any, parameters: Mapping[str, inspect.Parameter]) -> Config:
    if isinstance(given, Config):
        return given
    if not isinstance(given, Mapping):
        raise _wrong(f"a configuration is {shown(given)}", "a configuration is a dict or an nki.Config")
    options = {name: given[name] for name in _LAUNCH if name in given and name not in parameters}
    return Config({name: value for name, value in given.items() if name not in options}, **options)


def _check_names(config: Config, parameters: Mapping[str, inspect.Parameter], kernel: str) -> None:
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    for name in config.arguments:
        if name not in parameters:
            raise _wrong(f"{kernel} has no parameter {name!r}", f"the parameters are {', '.join(parameters)}")


def _text(value: Any) -> str:
    """A value in full, because labels tell configurations apart."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return shown(value) if isinstance(value, FunctionType | type) else _ADDRESS.sub("", repr(value))


def _wrong(message: str, rule: str) -> LaunchError:
    return LaunchError("tune.config", message, rule=rule, fix='write configs=[{"tile": 256}, {"tile": 512}]')
