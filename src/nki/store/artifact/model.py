"""What makes a model of compiled programs in an artifact: names and types as the framework sees them, and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from nki.core.dtypes import DType, find
from nki.core.tensor import View, whole
from nki.spec.model_kernels import CoreKernels
from nki.spec.program import Program
from nki.store.artifact.metadata import from_json, refused, to_json
from nki.store.artifact.model_kernels import kernels_document, read_kernels

MODEL, WEIGHTS = "model.json", "weights.bin"
_ALIGNED = 64
_MOST = 1 << 16
_FIELDS = ("name", "arguments", "outputs", "constants", "aliases", "report", "kernels")


@dataclass(frozen=True, slots=True)
class Port:
    """An argument, a result or a constant: its name, and shape and dtype as the framework sees them.

    On the device a scalar is a tensor of one element, and truth values are uint8.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A model in an artifact. The arguments and then the constants are the inputs of its programs.

    Attributes:
        name: of the model.
        weights: bytes of the constants, in order, as on the device.
        aliases: results that take the memory of an argument: result and argument by position.
        report: how it was compiled, JSON.
        kernels: of each core's program, with the parts of the model that they compute; () if nothing is known of that.
    """

    name: str
    arguments: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: tuple[Port, ...]
    weights: tuple[np.ndarray, ...]
    aliases: Mapping[int, int]
    report: Mapping[str, Any]
    kernels: tuple[CoreKernels, ...] = ()


def model_members(part: ModelPart | None, programs: Sequence[Program]) -> dict[str, bytes]:
    """The members of a model. Raises ArtifactError "artifact.model" if it does not fit its programs."""
    if part is None:
        return {}
    _check(part, programs[0])
    document = {
        "name": part.name,
        "arguments": _ports(part.arguments),
        "outputs": _ports(part.outputs),
        "constants": _ports(part.constants),
        "aliases": [list(pair) for pair in sorted(part.aliases.items())],
        "report": dict(part.report),
        "kernels": kernels_document(part.kernels),
    }
    weights = b"".join(_padded(np.ascontiguousarray(array).tobytes()) for array in part.weights)
    return {MODEL: to_json(document), WEIGHTS: weights}


def model_part(members: Mapping[str, bytes], programs: Sequence[Program]) -> ModelPart | None:
    """The model of an artifact's members, if it is one. Raises ArtifactError "artifact.model"."""
    if MODEL not in members and WEIGHTS not in members:
        return None
    if MODEL not in members or WEIGHTS not in members:
        raise refused("artifact.model", f"{MODEL} without {WEIGHTS}, or without the other", "a model has both members")
    document = from_json(MODEL, members[MODEL])
    if tuple(document) != _FIELDS or type(document["name"]) is not str or type(document["report"]) is not dict:
        raise refused("artifact.model", f"fields {', '.join(document)}"[:200], f"{MODEL} has {', '.join(_FIELDS)}")
    arguments, outputs, constants = (_read(document[name]) for name in ("arguments", "outputs", "constants"))
    weights = _weights(constants, members[WEIGHTS])
    aliases = _aliases(document["aliases"], outputs, arguments)
    kernels = read_kernels(document["kernels"], [sum(1 for _ in program.body.walk()) for program in programs])
    part = ModelPart(document["name"], arguments, outputs, constants, weights, aliases, document["report"], kernels)
    _check(part, programs[0])
    return part


def _check(part: ModelPart, program: Program) -> None:
    """Every port is the tensor of the program in its place."""
    ports = (*part.arguments, *part.constants, *part.outputs)
    views = [*map(whole, program.inputs), *program.outputs]
    if len(part.arguments) + len(part.constants) != len(program.inputs) or len(ports) != len(views):
        raise refused(
            "artifact.model",
            f"{len(part.arguments)} arguments, {len(part.constants)} constants and {len(part.outputs)} results",
            f"the program has {len(program.inputs)} inputs and {len(program.outputs)} outputs",
        )
    for port, view in zip(ports, views, strict=True):
        if not _fits(port, view):
            raise refused(
                "artifact.model",
                f"{port.name} is {port.dtype}{list(port.shape)}, and its tensor {view.describe()}"[:300],
                "a tensor of the model has the size and dtype of the program's",
            )
    for result, argument in part.aliases.items():
        if program.outputs[result].buffer is not program.inputs[argument]:
            raise refused("artifact.model", f"result {result} is not argument {argument}", "aliases share memory")


def _fits(port: Port, view: View) -> bool:
    """Whether both have as many elements of one dtype; a result that is another one in another shape has its memory."""
    stored = "uint8" if port.dtype.kind == "bool" else port.dtype.name
    return prod(view.shape) == prod(port.shape) and view.dtype.name == stored


def _ports(ports: Sequence[Port]) -> list[dict[str, Any]]:
    return [{"name": port.name, "shape": list(port.shape), "dtype": port.dtype.name} for port in ports]


def _read(found: Any) -> tuple[Port, ...]:
    if type(found) is not list or len(found) > _MOST:
        raise refused("artifact.model", "a list of tensors is missing or too long", f"up to {_MOST} are listed")
    return tuple(_port(each) for each in found)


def _port(found: Any) -> Port:
    if type(found) is not dict or tuple(found) != ("name", "shape", "dtype"):
        raise refused("artifact.model", f"a tensor is {found!r}"[:200], "it has name, shape and dtype")
    name, shape, dtype = found.values()
    known = find(dtype) if type(dtype) is str else None
    sizes = type(shape) is list and all(type(size) is int and 0 <= size < 1 << 40 for size in shape)
    if type(name) is not str or not sizes or known is None:
        raise refused("artifact.model", f"a tensor is {found!r}"[:200], "it has a name, sizes and a known dtype")
    return Port(name, tuple(shape), known)


def _weights(ports: Sequence[Port], data: bytes) -> tuple[np.ndarray, ...]:
    """Read-only arrays over the bytes."""
    sizes = [prod(port.shape) * port.dtype.itemsize for port in ports]
    starts = [0, *accumulate(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]
    if starts[-1] != len(data):
        raise refused("artifact.model", f"{WEIGHTS} has {len(data)} bytes", f"the constants have {starts[-1]}")
    flat = np.frombuffer(data, np.uint8)
    return tuple(
        flat[start : start + size].view(stored(port.dtype)).reshape(port.shape or (1,))
        for port, start, size in zip(ports, starts, sizes, strict=False)
    )


def stored(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype of what the device holds."""
    return np.dtype(np.uint8) if dtype.kind == "bool" else dtype.numpy


def _aliases(found: Any, outputs: Sequence[Port], arguments: Sequence[Port]) -> dict[int, int]:
    pairs: list[Any] = found if type(found) is list else [None]
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2 or any(type(number) is not int for number in pair):
            raise refused("artifact.model", f"aliases {found!r}"[:200], "they are pairs of positions")
        if not (0 <= pair[0] < len(outputs) and 0 <= pair[1] < len(arguments)):
            raise refused("artifact.model", f"alias {pair}", "a result takes the memory of an argument")
    return dict(pairs)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNED)
