"""A compiled model: programs with the names, types and weights that a framework needs, and how to run it once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from nki.core.errors import ArgumentError, ArtifactError
from nki.core.shown import shown
from nki.core.source import UNKNOWN
from nki.core.tensor import MemoryRegion
from nki.driver.compiled import Kept
from nki.driver.execute import run_compiled
from nki.driver.prepare import default_options
from nki.frontend.results import deliver, written_inputs
from nki.options import API_VERSIONS, IMITATE, MATMUL, Options
from nki.ranks.current import communicator
from nki.report import Executed
from nki.runtime import arguments
from nki.runtime.spans import span
from nki.runtime.traffic import traffic
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.store.artifact import container
from nki.store.artifact.contents import Artifact
from nki.store.artifact.metadata import refused
from nki.store.artifact.model import ModelPart, Port, stored
from nki.target.load import load_target
from nki.target.model import Target

_KEPT: Mapping[str, tuple[str, ...]] = {"matmul": MATMUL, "api": API_VERSIONS, "imitate": IMITATE}
"""Options that a file keeps, with what they may be."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to: results in order, who executed the instructions, and what was noticed."""

    results: list[np.ndarray]
    executed: Executed
    findings: tuple[Finding, ...]


@dataclass(slots=True, eq=False)
class Model:
    """A compiled model, which may run in several threads at once.

    Attributes:
        part: names, types, weights, aliases and report.
        programs: one for each core; their inputs are the arguments, then the constants.
        target: what it was compiled for.
        options: of its runs; who executes, and how products are summed.
        kept: what its runs have in common.
        executed: who executed the instructions of the last run that ended.
    """

    part: ModelPart
    programs: tuple[Program, ...]
    target: Target
    options: Options
    kept: Kept = field(default_factory=Kept, init=False)
    executed: Executed = field(default_factory=Executed, init=False)
    _written: frozenset[int] = field(init=False)
    _facts: Mapping[str, int] = field(init=False)
    _weights: tuple[np.ndarray, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._written = written_inputs(self.programs)
        found = traffic(self.programs)
        self._facts = {"cores": len(self.programs), **(found.facts() if found.meetings else {})}
        self._weights = tuple(_on_device(array) for array in self.part.weights)

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def artifact(self) -> str:
        """Plans of models are not kept on disk."""
        return ""

    @property
    def weight_bytes(self) -> int:
        """Device memory of the constants."""
        return sum(array.nbytes for array in self.part.weights)

    @property
    def memory_bytes(self) -> int:
        """Device memory beside arguments and constants: results, temporaries and constants of kernels."""
        return sum(buffer.nbytes for buffer in self.programs[0].body.all_buffers() if not buffer.on_chip)

    def private_bytes(self, core: int) -> int:
        """Device memory that one of the cores has for itself."""
        buffers = self.programs[core].body.all_buffers()
        return sum(b.nbytes for b in buffers if not b.on_chip and b.region is not MemoryRegion.shared_hbm)

    @arguments.checked()
    def run(self, arrays: Sequence[np.ndarray], *, donate: bool = False) -> Outcome:
        """Run once.

        Args:
            arrays: of the arguments in order, of their shapes and dtypes.
            donate: whether the memory of an argument that a result takes may be overwritten; else it is copied first.

        Raises:
            ArgumentError: "model.arguments" for another number, shape or dtype.
            NkiError: what the machine raises.
        """
        return self.execute(arrays, donate)

    def execute(self, arrays: Sequence[np.ndarray], donate: bool = False) -> Outcome:
        """`run`, for callers that are part of this package."""
        given = self.checked(arrays)
        for position in self._written:
            if position < len(given) and (not donate or not given[position].flags.writeable):
                given[position] = given[position].copy()
        findings: list[Finding] = []
        program = self.programs[0]
        inputs = [*map(_on_device, given), *self._weights]
        with span("execute", "runtime", model=self.part.name, **self._facts):
            storages, executed = run_compiled(
                self, inputs, self.target, self.options, findings.append, None, communicator()
            )
            made = deliver(tuple(program.outputs), program, storages, [])
        results = [_seen(array, port) for array, port in zip(made, self.part.outputs, strict=True)]
        for result, argument in self.part.aliases.items():
            results[result] = given[argument]
        self.executed = executed
        return Outcome(results, executed, tuple(findings))

    def checked(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays as the device holds them, contiguous. Raises ArgumentError "model.arguments"."""
        ports = self.part.arguments
        if not isinstance(arrays, list | tuple):
            raise _refused(self, f"{shown(arrays)} for a list of {len(ports)} arrays")
        if len(arrays) != len(ports):
            raise _refused(self, f"{len(arrays)} arrays for {len(ports)} arguments")
        return [self._checked(array, port) for array, port in zip(arrays, ports, strict=True)]

    def _checked(self, array: np.ndarray, port: Port) -> np.ndarray:
        try:
            found = np.asarray(array)
        except (TypeError, ValueError) as error:
            raise _refused(self, f"{port.name} is no array: {error}") from None
        if found.shape != port.shape or found.dtype != port.dtype.numpy:
            raise _refused(self, f"{port.name} is {found.dtype}{list(found.shape)}, not {port.dtype}{list(port.shape)}")
        return found if found.flags.c_contiguous else np.ascontiguousarray(found).reshape(port.shape)

    @arguments.checked(path=arguments.path)
    def save(self, path: Path) -> None:
        """Write a ``.neff`` file. Raises ArtifactError "artifact.file"."""
        options: Mapping[str, Any] = {name: getattr(self.options, name) for name in _KEPT}
        disabled = self.options.disabled_rules
        container.save(path, container.pack(self.programs, options=options, disabled_rules=disabled, model=self.part))


@arguments.checked(
    path=arguments.path, options=arguments.one_of(Options, NoneType, rule="nki.options.Options, or None")
)
def load_model(path: Path, options: Options | None = None) -> Model:
    """Read and check a file that `Model.save` wrote.

    Args:
        path: the file.
        options: of its runs; by default the environment's, and where that says nothing how the model was compiled.

    Raises:
        ArtifactError: see `nki.store.artifact.validate.unpack`; "artifact.model" for a compiled kernel that is no
                model.
    """
    with span("load", "runtime", file=path.name):
        return model_of(container.load(path), options)


def model_of(found: Artifact, options: Options | None = None) -> Model:
    """The model in an artifact. Raises ArtifactError "artifact.model" if there is none."""
    if found.model is None:
        raise ArtifactError(
            "artifact.model",
            f"{found.header.name} is a compiled kernel",
            rule="a model has names and weights beside its programs",
            fix="run it with nki run FILE.neff, or write a model with nki cc",
            location=UNKNOWN,
        )
    options = _options_of(found) if options is None else options
    options = replace(options, disabled_rules=frozenset(found.origin.disabled_rules))
    return Model(found.model, found.programs, load_target(found.programs[0].target), options)


def _options_of(found: Artifact) -> Options:
    """How the model runs: as the environment says, and as it was compiled where the environment says nothing.

    Raises:
        ArtifactError: "artifact.meta" for a setting that no option has.
    """
    kept = {name: value for name, value in found.origin.options.items() if name in _KEPT}
    for name, value in kept.items():
        if value not in _KEPT[name]:
            raise refused("artifact.meta", f"{name} is {value!r}"[:200], f"it is one of {', '.join(_KEPT[name])}")
    return default_options(kept)


def _on_device(array: np.ndarray) -> np.ndarray:
    """An array as the device sees its bytes: at least one dimension, truth values as bytes."""
    array = array.reshape(1) if array.ndim == 0 else array
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _seen(array: np.ndarray, port: Port) -> np.ndarray:
    """A result as the framework sees it."""
    return array.view(port.dtype.numpy).reshape(port.shape) if array.dtype == stored(port.dtype) else array


def _refused(model: Model, message: str) -> ArgumentError:
    wanted = ", ".join(f"{port.name}: {port.dtype}{list(port.shape)}" for port in model.part.arguments) or "none"
    return ArgumentError(
        "model.arguments",
        f"model {model.name}: {message}",
        rule=f"it was compiled for {wanted}",
        fix="pass arrays of these shapes and dtypes, or compile the model for others",
        location=UNKNOWN,
    )
