"""A whole function of JAX as one program of the device: ``nki.interop.jax.compile(function)``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from nki.core.errors import ArgumentError, LaunchError
from nki.core.shown import shown
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.jax import Lowered, lower
from nki.graph.ir import Module
from nki.graph.references import Reference, is_reference, register
from nki.interop.jax_callee import CALLEES, Arrays, Callee, Shaped
from nki.interop.jax_config import BackendConfig, binary_in
from nki.interop.jax_primitive import Site, nki_call
from nki.interop.jax_sites import user_site
from nki.interop.jax_structures import DTYPES
from nki.report import Executed, Report
from nki.spec.rule import Finding
from nki.store.keys import key_of


@dataclass(frozen=True, slots=True)
class Entry:
    """The program for arguments of certain shapes and dtypes, and how it belongs to them."""

    lowered: Lowered
    executable: Executable
    callee: Callee


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
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._target, self._dump_dir = function, target, dump_dir
        self._patterns, self._lnc = patterns, lnc
        self._donate, self._static = tuple(donate), static
        self._entries: dict[Any, Entry] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result, as arrays of JAX in the function's tree; under `jax.jit` it is part of the traced program."""
        entry = self.entry(*args, **kwargs)
        leaves = self._leaves(args, kwargs)
        operands = [leaves[place] for place in entry.lowered.kept]
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            given = nki_call.bind(*map(jax.numpy.asarray, operands), callee=entry.callee, site=Site(user_site()))
        else:
            given = [jax.numpy.asarray(array) for array in entry.callee.run([_host(x) for x in operands], "jax")]
            self._delete(args)
        wanted = zip(given, entry.lowered.outputs, strict=True)
        results = [result if result.dtype == leaf.dtype else result.astype(leaf.dtype) for result, leaf in wanted]
        return jax.tree.unflatten(entry.lowered.tree, results)

    def executable(self, *args: Any, **kwargs: Any) -> Executable:
        """The program for such arguments, which may be `jax.ShapeDtypeStruct`; its `report` says how it was made."""
        return self.entry(*args, **kwargs).executable

    def executables(self) -> list[Executable]:
        """The programs that were made so far, the oldest first."""
        return [entry.executable for entry in self._entries.values()]

    def entry(self, *args: Any, **kwargs: Any) -> Entry:
        """The program for such arguments, compiled if it is the first time."""
        key = self._key(args, kwargs)
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = self._compiled(args, kwargs)
        return found

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        lowered = lower(self._function, args, kwargs, donate=self._donate, static=self._static)
        name = getattr(self._function, "__name__", "function")
        kept = _references(lowered.module)
        folder = f"{self._dump_dir}/{name}_{len(self._entries)}" if self._dump_dir else None
        executable = compile_module(
            lowered.module,
            name=name,
            target=self._target,
            dump_dir=folder,
            donated=lowered.donated,
            patterns=self._patterns,
            lnc=self._lnc,
        )
        del kept  # the program has copies of the kernels
        return Entry(lowered, executable, CALLEES.one(_callee(name, lowered, executable)))

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
        kinds = tuple(
            (tuple(np.shape(leaf)), jax.dtypes.canonicalize_dtype(jax.numpy.result_type(leaf))) for leaf in leaves
        )
        return tree, kinds, constants

    def _delete(self, args: tuple[Any, ...]) -> None:
        """Donated arrays are gone after the call, as under `jax.jit`."""
        for number in self._donate:
            for leaf in jax.tree.leaves(args[number]):
                if isinstance(leaf, jax.Array):
                    leaf.delete()

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._function, '__qualname__', self._function)}, {len(self._entries)} programs>"


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

    Raises:
        LaunchError: "jax.compile" for something that cannot be called; in a call "launch.lnc" for a target whose
            logical cores cannot have so many cores.
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
        static = (_numbers(static_argnums), _names(static_argnames))
        wanted = None if patterns is None else frozenset(patterns)
        return CompiledFunction(target_function, target, _numbers(donate_argnums), static, dump_dir, wanted, lnc)

    return decorate if function is None else decorate(function)


def _numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _references(module: Module) -> list[Reference]:
    """Make the kernels known that a module calls; they are known as long as the result lives."""
    kept = []
    for op in module.walk():
        if is_reference(op):
            callee = CALLEES.find(binary_in(op.attributes["backend_config"]))
            if callee is not None:
                kept.append(register(callee.key, callee.config.func_name, callee.report.programs))
    return kept


def _host(value: Any) -> np.ndarray:
    """The array behind an argument, in the dtype that JAX gives it; without a copy where that is possible."""
    found = np.asarray(value)
    dtype = jax.dtypes.canonicalize_dtype(jax.numpy.result_type(value))
    return found if found.dtype == dtype else found.astype(dtype)


def _callee(name: str, lowered: Lowered, executable: Executable) -> Callee:
    """The program as JAX calls kernels, so that it can be part of other programs."""
    inputs = tuple(_shaped(port.shape, port.dtype.numpy) for port in executable.arguments)
    outputs = tuple(_shaped(port.shape, port.dtype.numpy) for port in executable.outputs)
    ports = executable.arguments

    def run(arrays: Arrays) -> tuple[Arrays, Executed, Sequence[Finding]]:
        outcome = executable.outcome(
            [_narrow(array, port.dtype.numpy) for array, port in zip(arrays, ports, strict=True)]
        )
        return outcome.results, outcome.executed, outcome.findings

    key = key_of("jax-function", text=lowered.text, target=executable.report.target, name=name)
    config = BackendConfig(
        key, tuple(port.name for port in ports), tuple(port.name for port in executable.outputs), name, (), False
    )
    report = Report(name, executable.report.target, "compiled", 1, "", True, key, (), executable.programs)
    return Callee(config, inputs, outputs, run, report)


def _shaped(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Shaped:
    return Shaped(shape, dtype, DTYPES[dtype.name], int(np.prod(shape)) * dtype.itemsize)


def _narrow(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """64-bit numbers, which JAX has if it is told so, as the 32-bit ones of the device."""
    if array.dtype == dtype:
        return array
    made = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(made, array):
        raise ArgumentError(
            "graph.range",
            f"an argument is {array.dtype} and has values up to {np.abs(array).max()}",
            rule=f"{array.dtype} is {dtype} on the device",
            fix="keep such numbers on the host, or split them into two arrays",
            location=user_site(),
        )
    return made
