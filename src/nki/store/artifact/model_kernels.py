"""The kernels of a model's programs in ``model.json``: names of modules once, parts of a model by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.origin import ModuleCall, Origin
from nki.spec.model_kernels import CoreKernels, KernelCall, KernelPart
from nki.store.artifact.metadata import refused

_MOST = 1 << 62


def kernels_document(cores: Sequence[CoreKernels]) -> dict[str, Any]:
    """The kernels of each core as JSON."""
    modules: dict[ModuleCall, int] = {}
    origins: dict[Origin, int] = {}
    for origin in (part.origin for kernels in cores for call in kernels for part in call.parts):
        for module in origin.modules:
            modules.setdefault(module, len(modules))
        origins.setdefault(origin, len(origins))
    return {
        "modules": [list(module) for module in modules],
        "origins": [[[modules[module] for module in origin.modules], origin.operation] for origin in origins],
        "cores": [[_call(call, origins) for call in kernels] for kernels in cores],
    }


def _call(call: KernelCall, origins: dict[Origin, int]) -> list[Any]:
    parts = [[origins[part.origin], part.work, part.reads, part.writes] for part in call.parts]
    return [call.name, call.first, call.after, parts]


def read_kernels(found: Any, counts: Sequence[int]) -> tuple[CoreKernels, ...]:
    """What `kernels_document` wrote.

    Args:
        found: JSON.
        counts: instructions of each core's program.

    Raises:
        ArtifactError: "artifact.model".
    """
    try:
        modules = [ModuleCall(_text(path), _text(kind)) for path, kind in found["modules"]]
        origins = [Origin(tuple(modules[_number(n)] for n in each), _text(name)) for each, name in found["origins"]]
        cores = tuple(tuple(_read(call, origins) for call in kernels) for kernels in found["cores"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise _wrong("they are no list of kernels") from None
    if kernels_document(cores) != found:
        raise _wrong("they are written in another way")
    if cores and len(cores) != len(counts):
        raise _wrong(f"they are those of {len(cores)} cores of {len(counts)}")
    for kernels, count in zip(cores, counts, strict=False):
        check_order(kernels, count)
    return cores


def check_order(kernels: CoreKernels, count: int) -> None:
    """Raises ArtifactError "artifact.model" unless kernels follow each other in a program of `count` instructions."""
    ends = [0, *(edge for call in kernels for edge in (call.first, call.after)), count]
    if ends != sorted(ends):
        raise _wrong(f"they do not follow each other in a program of {count} instructions")


def _read(call: Any, origins: Sequence[Origin]) -> KernelCall:
    name, first, after, parts = call
    made = tuple(KernelPart(origins[_number(origin)], *map(_number, sizes)) for origin, *sizes in parts)
    return KernelCall(_text(name), _number(first), _number(after), made)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(value)
    return value


def _wrong(what: str) -> Exception:
    return refused("artifact.model", f"the kernels of the model: {what}", "each kernel has its place in the program")
