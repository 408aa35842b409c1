"""A whole function of JAX as one program of the device: ``nki.interop.jax.compile(function)``."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nki.core.errors import LaunchError, NkiError
from nki.core.shown import shown
from nki.core.visible import file_name
from nki.graph.accepted import accepted
from nki.graph.compile import Setting
from nki.graph.executable import Executable
from nki.graph.importers.jax import lower
from nki.graph.patterns.selection import origins
from nki.interop.jax.prng_keys import is_key
from nki.interop.jax.program import JaxProgram, compile_lowered, divided
from nki.interop.jax.split import SplitFunction, split
from nki.interop.jax.unsupported import CANNOT_LOWER
from nki.interop.jax.user_location import user_site

Entry = JaxProgram | SplitFunction
"""What runs for arguments of certain shapes and dtypes."""


_MOST_KEPT = 256
"""Programs of a function, for shapes and static values, the least recently used ones removed first."""


class CompiledFunction:
    """What `compile` returns: called like the function, and compiled for each set of shapes, dtypes and constants."""

    def __init__(
        self,
        function: Callable[..., Any],
        target: str,
        donate: Sequence[int],
        static: tuple[tuple[int, ...], tuple[str, ...]],
        dump_dir: str,
        patterns: frozenset[str] | None = None,
        lnc: int = 1,
        fallback: str = "",
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._target, self._dump_dir = function, target, dump_dir
        self._patterns, self._lnc, self._fallback = patterns, lnc, fallback
        self._donate, self._static = tuple(donate), static
        self._entries: dict[Any, Entry] = {}
        self._numbers = itertools.count()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result, as arrays of JAX in the function's tree; under `jax.jit` it is part of the traced program."""
        entry = self.entry(*args, **kwargs)
        leaves = self._leaves(args, kwargs)
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        results = entry.run(leaves, traced)
        if not traced:
            self._delete(args)
        return jax.tree.unflatten(entry.tree, results)

    def executable(self, *args: Any, **kwargs: Any) -> Executable:
        """The program for such arguments, which may be `jax.ShapeDtypeStruct`; its `report` says how it was made.

        Raises:
            LaunchError: "jax.parts" if operations on the host make it several programs, or none.
        """
        found = self.entry(*args, **kwargs).executables
        if len(found) != 1:
            raise LaunchError(
                "jax.parts",
                f"{self._name} is {len(found)} programs, because some of its operations run on the host",
                rule="executable() gives the program of a function that is one",
                fix="take them from executables(), the oldest first",
                location=user_site(),
            )
        return found[0]

    def executables(self) -> list[Executable]:
        """The programs that are kept, the one that was used last at the end."""
        return [executable for entry in self._entries.values() for executable in entry.executables]

    def entry(self, *args: Any, **kwargs: Any) -> Entry:
        """The program for such arguments, compiled if it is the first time."""
        key = self._key(args, kwargs)
        found = self._entries.pop(key, None)
        if found is None:
            found = self._compiled(args, kwargs)
        self._entries[key] = found
        while len(self._entries) > _MOST_KEPT:
            self._entries.pop(next(iter(self._entries)), None)
        return found

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", "function")

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        setting = Setting(
            self._name,
            self._target,
            dump_dir=f"{self._dump_dir}/{file_name(self._name)}_{next(self._numbers)}" if self._dump_dir else None,
            patterns=self._patterns,
            lnc=self._lnc,
        )
        try:
            lowered = lower(self._function, args, kwargs, donate=self._donate, static=self._static)
            return compile_lowered(lowered, setting)
        except (NkiError, *CANNOT_LOWER) as error:
            if self._fallback != "host":
                raise
            problem = error
        numbers, names = self._static
        traced = jax.jit(self._function, static_argnums=numbers, static_argnames=names).trace(*args, **kwargs)
        return split(traced, setting, problem, list(map(divided, self._leaves(args, kwargs))))

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Arguments that are arrays, and those that are constants."""
        numbers, names = self._static
        places = {number % len(args) for number in numbers if -len(args) <= number < len(args)}
        arrays = (
            [value for i, value in enumerate(args) if i not in places],
            {name: value for name, value in kwargs.items() if name not in names},
        )
        constants = (
            tuple((i, value) for i, value in enumerate(args) if i in places),
            tuple(sorted((name, value) for name, value in kwargs.items() if name in names)),
        )
        return arrays, constants

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves: list[Any] = jax.tree.leaves(self._split(args, kwargs)[0])
        return leaves

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrays, constants = self._split(args, kwargs)
        leaves, tree = jax.tree.flatten(arrays)
        shapes = tuple((tuple(np.shape(leaf)), _dtype(leaf), divided(leaf)) for leaf in leaves)
        return tree, shapes, constants, origins(self._patterns)

    def _delete(self, args: tuple[Any, ...]) -> None:
        """Donated arrays are gone after the call, as under `jax.jit`."""
        for number in self._donate:
            for leaf in jax.tree.leaves(args[number]):
                if isinstance(leaf, jax.Array):
                    leaf.delete()

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._function, '__qualname__', self._function)}, {len(self._entries)} programs>"


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if is_key(leaf) else jax.dtypes.canonicalize_dtype(jax.numpy.result_type(leaf))


def compile(
    function: Callable[..., Any] | None = None,
    *,
    target: str = "",
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    dump_dir: str = "",
    patterns: Sequence[str] | None = None,
    lnc: int = 1,
    fallback: str = "",
) -> Any:
    """Compile a function of JAX as a whole; without a function, the result is a decorator.

    It is traced like under `jax.jit`, and what JAX lowers becomes one program in which kernels are linked. It may
    be called with arrays of NumPy and JAX in any trees, also inside of `jax.jit`; it has no derivative of its own, so
    compile the function that computes the gradient.

    Args:
        target: the target's name; by default that of the environment.
        donate_argnums: arguments whose memory results may take; arrays of JAX among them are deleted by a call.
        static_argnums, static_argnames: arguments that are constants of the program.
        dump_dir: folder where the stages of each program are written.
        patterns: names of the kernels that may replace parts of a program; None for all, empty for none.
        lnc: cores that run the program together, 1 or 2.
        fallback: "host": operations that cannot be compiled run on the CPU, by JAX, between programs of the device,
            each with a warning, and are counted in `provenance`; empty: they are errors.

    Raises:
        LaunchError: "jax.compile" for something that cannot be called, "jax.compile-options" for another `fallback`;
            in a call "launch.lnc" for a target whose logical cores cannot have so many cores.
        GraphError: in a call, an operation that has no kernel, at the model's line.
    """

    def decorate(target_function: Callable[..., Any]) -> CompiledFunction:
        if not callable(target_function):
            raise LaunchError(
                "jax.compile",
                f"compile got {shown(target_function)}",
                rule="a function of arrays is compiled",
                fix="write compile(function), and call what it returns",
                location=user_site(),
            )
        static = (_numbers("static_argnums", static_argnums, target_function), _names(static_argnames))
        donate = _numbers("donate_argnums", donate_argnums, target_function)
        return CompiledFunction(target_function, donate=donate, static=static, fallback=fallback, **settings)

    given = {"target": target, "dump_dir": dump_dir, "patterns": patterns, "lnc": lnc}
    settings = accepted("compile", "jax.compile-options", given, user_site())
    if not isinstance(fallback, str) or fallback not in ("", "host"):
        raise LaunchError(
            "jax.compile-options",
            f"compile got fallback={fallback!r}",
            rule='fallback is "host" or empty',
            fix='write compile(function, fallback="host")',
            location=user_site(),
        )

    return decorate if function is None else decorate(function)


def _numbers(name: str, given: int | Sequence[int], function: Callable[..., Any]) -> tuple[int, ...]:
    """Positions of arguments that the function has."""
    found = given if isinstance(given, list | tuple) else (given,)
    count = _most_arguments(function)
    for number in found:
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or not -count <= number < count:
            fix = f"write {name}=0, or a tuple of such numbers"
            raise _refused(f"{name}={shown(given)}", f"{name} are numbers of arguments that the function has", fix)
    return tuple(map(int, found))


def _most_arguments(function: Callable[..., Any]) -> int:
    """How many arguments may be given by position."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # a builtin that does not tell
        return sys.maxsize
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return sys.maxsize
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    found = given if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(name, str) and name.isidentifier() for name in found):
        rule = "static_argnames are names of parameters"
        raise _refused(f"static_argnames={shown(given)}", rule, 'write static_argnames="steps", or a tuple of names')
    return tuple(found)


def _refused(got: str, rule: str, fix: str) -> LaunchError:
    return LaunchError("jax.compile-options", f"compile got {got}", rule=rule, fix=fix, location=user_site())
