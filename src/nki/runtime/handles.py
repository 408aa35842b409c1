"""What the runtime hands out: tensors, loaded models, and the state of its cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import ArgumentError, ArtifactError, NkiError
from nki.runtime.device import CoreStatus
from nki.runtime.model import Model, load_model
from nki.runtime.status import NrtError, refused
from nki.store.artifact.model import Port, stored

T = TypeVar("T")

_OUT_OF_BOUNDS = frozenset({"access.dynamic-out-of-bounds"})


@dataclass(eq=False, slots=True)
class Tensor:
    """Memory of a core.

    Attributes:
        core: number of the core.
        shape, dtype: as the framework sees them.
    """

    name: str
    core: int
    shape: tuple[int, ...]
    dtype: DType
    _array: np.ndarray
    _number: int

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return prod(self.shape) * stored(self.dtype).itemsize


@dataclass(eq=False, slots=True)
class LoadedModel:
    """A model on a core, or on several that follow each other.

    Attributes:
        core: the first of them, whose tensors its calls take.
        cores: all of them.
    """

    model: Model
    core: int
    cores: tuple[int, ...]
    _memory: tuple[tuple[int, int], ...]
    """Cores, and numbers in the accounts of their memory."""
    _running: int = 0


@dataclass(frozen=True, slots=True)
class CoreState:
    """A core and its memory, see `Runtime.state`.

    Attributes:
        memory: name of the stack; `capacity` and `used` are bytes of it.
        models: names of those on the core.
        status: "timed out" means that it still works on a call whose caller does not wait any more.
    """

    core: int
    device: int
    memory: str
    capacity: int
    used: int
    models: tuple[str, ...]
    status: CoreStatus

    @property
    def busy(self) -> bool:
        """Whether it works on a call."""
        return self.status != "ready"


def named(loaded: LoadedModel, given: Mapping[str, Tensor], ports: tuple[Port, ...], what: str) -> list[Tensor]:
    """The tensors of a call in the order of the ports. Raises NrtError "runtime.input"."""
    found = []
    for port in ports:
        tensor = given.get(port.name)
        fits = tensor is not None and (tensor.shape, tensor.dtype) == (port.shape, port.dtype)
        if tensor is None or not fits or tensor.core != loaded.core:
            shown = "missing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)} on core {tensor.core}"
            raise refused(
                "runtime.input",
                f"{what} {port.name} of {loaded.model.name} is {shown}",
                f"it is {port.dtype}{list(port.shape)} on core {loaded.core}",
                "allocate a tensor of that shape and dtype there",
            )
        found.append(tensor)
    if len(given) != len(ports):
        unknown = ", ".join(sorted(set(given) - {port.name for port in ports}))
        raise refused(
            "runtime.input", f"{unknown} of {loaded.model.name}", f"each {what} is named once", "leave it out"
        )
    return found


def as_argument(made: Callable[[], T]) -> T:
    """What is made of an argument of the runtime. Raises NrtError "runtime.argument" where that is an error."""
    try:
        return made()
    except NkiError as error:
        raise NrtError(
            "runtime.argument", error.message, rule=error.rule, fix=error.fix, location=error.location
        ) from error


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse what is no shape. Raises NrtError "runtime.argument"."""
    if any(size < 0 for size in shape):
        raise refused("runtime.argument", f"shape {shape}", "sizes are 0 or more", "write the sizes of the tensor")


def model_in(path: Path) -> Model:
    """The model in a file. Raises NrtError "runtime.file"."""
    try:
        return load_model(path)
    except ArtifactError as error:
        raise refused("runtime.file", error.message, error.rule, error.fix) from error


def failed(loaded: LoadedModel, error: NkiError) -> NrtError:
    """What a model's failure is to the caller; the error itself is the cause."""
    return NrtError(
        "runtime.input"
        if isinstance(error, ArgumentError)
        else "runtime.bounds"
        if error.code in _OUT_OF_BOUNDS
        else "runtime.execution",
        f"model {loaded.model.name} on core {loaded.core}: [{error.code}] {error.message}",
        rule=error.rule,
        fix=error.fix,
        location=error.location,
    )
