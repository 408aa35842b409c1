"""A function of JAX as one program of the device, called with flat lists of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from nki.core.errors import ArgumentError
from nki.graph.compile import Setting, compile_module
from nki.graph.executable import Executable
from nki.graph.importers.jax import Lowered
from nki.graph.importers.jax_shards import Shards
from nki.graph.ir import Module
from nki.graph.patterns.selection import fingerprint
from nki.graph.references import Reference, is_reference, register
from nki.interop.common.backend_config import BackendConfig, binary_in
from nki.interop.jax.callee import CALLEES, Arrays, Callee, Shaped
from nki.interop.jax.ffi_structures import DTYPES
from nki.interop.jax.primitive import Site, nki_call
from nki.interop.jax.prng_keys import in_pairs, raw, typed
from nki.interop.jax.user_location import user_site
from nki.ranks.parallel import Parallel
from nki.report import Executed, Report
from nki.spec.rule import Finding
from nki.store.keys import key_of


@dataclass(frozen=True, slots=True)
class JaxProgram:
    """The program for arguments of certain shapes and dtypes, and how it belongs to them."""

    lowered: Lowered
    executable: Executable
    callee: Callee

    @property
    def tree(self) -> Any:
        """The tree of the function's result."""
        return self.lowered.tree

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program, as the only one."""
        return (self.executable,)

    def run(self, leaves: Sequence[Any], traced: bool) -> list[Any]:
        """The leaves of the result for those of the arguments.

        Args:
            traced: whether the call becomes part of a program that JAX traces.
        """
        operands = [in_pairs(raw(leaves[place])) for place in self.lowered.kept]
        if self.lowered.shards is not None:
            return self._run_on_ranks(self.lowered.shards, [_host(x) for x in operands], traced)
        if traced:
            given = nki_call.bind(*map(jax.numpy.asarray, operands), callee=self.callee, site=Site(user_site()))
        else:
            given = [jax.numpy.asarray(array) for array in self.callee.run([_host(x) for x in operands], "jax")]
        wanted = zip(given, self.lowered.outputs, strict=True)
        return [typed(result, leaf) for result, leaf in wanted]

    def _run_on_ranks(self, shards: Shards, operands: Sequence[np.ndarray], traced: bool) -> list[Any]:
        """The leaves of the result, of a program that all devices of a mesh run at the same time."""
        if traced:
            raise ArgumentError(
                "graph.sharding",
                "a compiled function over several devices is called in a program that JAX traces",
                rule="a program of several ranks is called with arrays",
                fix="compile the outer function in its place, or call it outside of jax.jit",
                location=user_site(),
            )
        parts = shards.parts(operands, self.lowered.kept)
        made = Parallel(shards.ranks).run([partial(self.callee.run, own, "jax") for own in parts])
        whole = zip(shards.whole(made, self.lowered.outputs), self.lowered.outputs, shards.shardings, strict=True)
        return [jax.device_put(typed(jax.numpy.asarray(each), leaf), place) for each, leaf, place in whole]


def compile_lowered(lowered: Lowered, setting: Setting) -> JaxProgram:
    """Compile what JAX lowered.

    Raises:
        GraphError: an operation that has no kernel, at the model's line.
        LaunchError: "launch.lnc" for a target whose logical cores cannot have so many cores.
    """
    kept = references(lowered.module)
    executable = compile_module(lowered.module, setting, donated=lowered.donated)
    del kept  # the program has copies of the kernels
    return JaxProgram(lowered, executable, CALLEES.one(_callee(setting, lowered, executable)))


def references(module: Module) -> list[Reference]:
    """Make the kernels known that a module calls; they are known as long as the result lives."""
    kept = []
    for op in module.walk():
        if is_reference(op):
            callee = CALLEES.find(binary_in(op.attributes["backend_config"]))
            if callee is not None:
                kept.append(register(callee.key, callee.config.func_name, callee.report.programs))
    return kept


def divided(leaf: Any) -> Any:
    """The sharding of an argument that lies on several devices, or will; None for any other one."""
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return None
    sharding = leaf.sharding
    return sharding if sharding is not None and sharding.num_devices > 1 else None


def _host(value: Any) -> np.ndarray:
    """The array behind an argument, in the dtype that JAX gives it; without a copy where that is possible."""
    found = np.asarray(value)
    dtype = jax.dtypes.canonicalize_dtype(jax.numpy.result_type(value))
    return found if found.dtype == dtype else found.astype(dtype)


def _callee(setting: Setting, lowered: Lowered, executable: Executable) -> Callee:
    """The program as JAX calls kernels, so that it can be part of other programs."""
    inputs = tuple(_shaped(port.shape, port.dtype.numpy) for port in executable.arguments)
    outputs = tuple(_shaped(port.shape, port.dtype.numpy) for port in executable.outputs)
    ports, name, target = executable.arguments, setting.name, executable.report.target

    def run(arrays: Arrays) -> tuple[Arrays, Executed, Sequence[Finding]]:
        outcome = executable.outcome(
            [_narrow(array, port.dtype.numpy) for array, port in zip(arrays, ports, strict=True)]
        )
        return outcome.results, outcome.executed, outcome.findings

    key = key_of(
        "jax-function",
        text=lowered.text,
        target=target,
        name=name,
        patterns=fingerprint(setting.patterns),
        lnc=setting.lnc,
    )
    config = BackendConfig(
        key, tuple(port.name for port in ports), tuple(port.name for port in executable.outputs), name, (), False
    )
    return Callee(config, inputs, outputs, run, _report(name, target, key, executable))


def _report(name: str, target: str, key: str, executable: Executable) -> Report:
    return Report(
        kernel=name,
        target=target,
        mode="compiled",
        cores=1,
        matmul="",
        precise_fp=True,
        kernel_hash=key,
        findings=(),
        programs=executable.programs,
    )


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
