"""A function of JAX of which some operations run on the host, between programs of the device, because the user asked
for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from nki.core.errors import NkiError
from nki.driver.prepare import chosen_target
from nki.graph.compile import Setting
from nki.graph.executable import Executable
from nki.graph.importers.jax import lower
from nki.graph.partition.meeting_cost import check_lnc
from nki.interop.common.host_fallback import part_of, warn_of_host
from nki.interop.jax.equations import Equation, Equations, Variable, equations_of, shape_of
from nki.interop.jax.prng_keys import is_key
from nki.interop.jax.program import JaxProgram, compile_lowered
from nki.interop.jax.unsupported import at_line, refusals
from nki.runtime.spans import span

_RAN: Counter[str] = Counter()
"""What ran on the host, as `provenance` tells it of the process; one count for each operation of a function, until
`forget`."""

Hosted = Mapping[Equation, NkiError]
"""Equations that run on the host, and why."""


def provenance() -> dict[str, int]:
    """How often each operation of functions compiled with ``fallback="host"`` ran on the host since the last
    `forget`; what became part of another program of JAX is not counted."""
    return dict(sorted(_RAN.items()))


def forget() -> None:
    """Count from zero."""
    _RAN.clear()


class HostPart:
    """Operations that JAX runs on the CPU."""

    def __init__(self, name: str, function: Callable[..., list[Any]], operations: Sequence[str]) -> None:
        self._names = tuple(dict.fromkeys(operations))
        function.__name__ = f"host_{'_'.join(self._names[:4])}"  # what JAX's own profiler shows
        self._function = jax.jit(function)
        self._name, self._operations = name, tuple(operations)

    @property
    def executables(self) -> tuple[Executable, ...]:
        return ()

    def run(self, leaves: Sequence[Any], traced: bool) -> list[Any]:
        """The results; in a program that JAX traces they are computed by a part of that program."""
        if traced:
            return list(self._function(*leaves))
        _RAN.update(f"jax.compile {self._name}: {each}" for each in self._operations)
        with span(f"host {', '.join(self._names)}", "host"), jax.default_device(jax.devices("cpu")[0]):
            return list(jax.block_until_ready(self._function(*map(_host, leaves))))


@dataclass(frozen=True, slots=True)
class FunctionPart:
    """What runs at one place without a break, by the variables that it takes and makes."""

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    runner: JaxProgram | HostPart


@dataclass(frozen=True, slots=True)
class SplitFunction:
    """Programs of the device and operations on the host, in order.

    Attributes:
        tree: of the function's result.
        types: shape and dtype of each leaf of it.
    """

    function: Equations
    parts: tuple[FunctionPart, ...]
    tree: Any
    types: tuple[Any, ...]

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The programs of the device; none if all of the function runs on the host."""
        return tuple(each for part in self.parts for each in part.runner.executables)

    def run(self, leaves: Sequence[Any], traced: bool) -> list[Any]:
        """The leaves of the result for those of the arguments, as of one program."""
        if traced:
            return self._run(leaves, True)
        with jax.ensure_compile_time_eval():
            return self._run(leaves, False)

    def _run(self, leaves: Sequence[Any], traced: bool) -> list[Any]:
        made: dict[Variable, Any] = {**self.function.constants}
        made |= dict(zip(self.function.arguments, leaves, strict=True))
        for part in self.parts:
            found = part.runner.run([made[variable] for variable in part.inputs], traced)
            made.update(zip(part.outputs, found, strict=True))
        results = zip(self.function.results, self.types, strict=True)
        return [_result(made[variable], leaf) for variable, leaf in results]


def _host(value: Any) -> Any:
    return value if is_key(value) else np.asarray(value)


def _result(value: Any, leaf: Any) -> Any:
    return value if is_key(leaf) else jax.numpy.asarray(value, leaf.dtype)


def split(traced: Any, setting: Setting, error: Exception, places: Sequence[Any]) -> SplitFunction:
    """A function with what cannot be compiled on the host, and everything else as programs of the device.

    Args:
        traced: what `jax.jit(...).trace(...)` returned.
        setting: how to compile the programs.
        error: why the function as a whole cannot be compiled; raised again if it is none of the compiler's, and all
            operations by themselves can be.
        places: the sharding of each leaf of the arguments over several devices, or None.
    """
    function = equations_of(traced.jaxpr)
    target = chosen_target(setting.target, setting.options.target)
    check_lnc(setting.name, setting.lnc, target)  # what is wrong with the options is no reason for the host
    hosted: dict[Equation, NkiError] = refusals(function, target)
    whole: NkiError | None = None
    if not hosted:
        if not isinstance(error, NkiError):
            raise error
        whole, hosted = _located(function, hosted, error)
    parts: tuple[FunctionPart, ...] | None = None
    while parts is None:
        try:
            parts = _parts(function, hosted, setting, dict(zip(function.arguments, places, strict=True)))
        except NkiError as problem:
            found, hosted = _located(function, hosted, problem)
            whole = whole or found
    _tell(setting.name, parts, hosted, whole)
    leaves, tree = jax.tree.flatten(traced.out_info)
    return SplitFunction(function, parts, tree, tuple(leaves))


def _located(function: Equations, hosted: Hosted, error: NkiError) -> tuple[NkiError | None, dict[Equation, NkiError]]:
    """More equations for the host, those at the line of an error; if none is left there all of them, and why."""
    more = at_line(function.equations, error)
    if all(each in hosted for each in more):
        return error, {each: hosted.get(each, error) for each in function.equations}
    return None, {each: hosted.get(each, error) for each in function.equations if each in hosted or each in more}


def _tell(name: str, parts: Sequence[FunctionPart], hosted: Hosted, whole: NkiError | None) -> None:
    """Warn, and list in the programs' reports what runs on the host beside them."""
    pairs = tuple((each.name, str(error.location)) for each, error in hosted.items())
    for part in parts:
        for executable in part.runner.executables:
            executable.report = replace(executable.report, fallbacks=pairs)
    way = 'compile(function, fallback="host")'
    if whole is not None:
        warn_of_host("jax.host", name, whole, way)
    else:
        for each, error in hosted.items():
            warn_of_host("jax.host", f"{name}: {each.name}", error, way)


def _parts(
    function: Equations, hosted: Hosted, setting: Setting, places: Mapping[Variable, Any]
) -> tuple[FunctionPart, ...]:
    """The function cut where the place changes."""
    numbers = _numbers(function, hosted)
    made: list[FunctionPart] = []
    for number in sorted(set(numbers.values())):
        own = [each for each in function.equations if numbers[each] == number]
        inputs, outputs = _edges(function, own)
        run = function.function(own, inputs, outputs)
        runner: JaxProgram | HostPart
        if number % 2:
            runner = HostPart(setting.name, run, [each.name for each in own])
        else:
            given = [shape_of(variable, places.get(variable)) for variable in inputs]
            lowered = lower(run, given, {}, donate=(), static=((), ()))
            runner = compile_lowered(lowered, _renamed(setting, number))
        made.append(FunctionPart(inputs, outputs, runner))
    return tuple(made)


def _numbers(function: Equations, hosted: Hosted) -> dict[Equation, int]:
    """The part of each equation. Those that do more than make values keep their order."""
    parts: dict[Equation, int] = {}
    of: dict[Variable, int] = {}
    effect = 0
    for each in function.equations:
        sources = [of[variable] for variable in each.inputs if variable in of]
        parts[each] = part_of([*sources, effect] if each.effects else sources, each in hosted)
        effect = parts[each] if each.effects else effect
        of.update((variable, parts[each]) for variable in each.outputs)
    return parts


def _edges(function: Equations, own: Sequence[Equation]) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    """What a part takes from others, and what others need of it, in the order of its equations."""
    inside = dict.fromkeys(variable for each in own for variable in each.outputs)
    inputs = dict.fromkeys(variable for each in own for variable in each.inputs)
    members = set(own)
    wanted = {variable for each in function.equations if each not in members for variable in each.inputs}
    wanted.update(function.results)
    return (
        tuple(variable for variable in inputs if variable not in inside and variable not in function.constants),
        tuple(variable for variable in inside if variable in wanted),
    )


def _renamed(setting: Setting, number: int) -> Setting:
    """How to compile a part: under a name, and in a folder of dumps, of its own."""
    folder = None if setting.dump_dir is None else f"{setting.dump_dir}.part_{number}"
    return replace(setting, name=f"{setting.name}.part_{number}", dump_dir=folder)
