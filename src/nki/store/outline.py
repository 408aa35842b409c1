"""Programs of which only the outline is read: what a call needs of them. The rest is decoded when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nki.core.dtypes import BY_NAME
from nki.core.locks import lock
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.spec.program import Program

Load = Callable[[], tuple[Program, ...]]
"""Decodes the programs of all cores."""


def outlines(programs: Sequence[Program]) -> list[Any] | None:
    """Inputs and outputs of each program as JSON; None if an output has a dynamic address, which has no JSON."""
    if any(view.dynamic is not None for program in programs for view in program.outputs):
        return None
    return [
        {
            "name": program.name,
            "target": program.target,
            "inputs": [buffer_written(buffer) for buffer in program.inputs],
            "outputs": [_view_written(view) for view in program.outputs],
        }
        for program in programs
    ]


def outlined(document: Sequence[Any], load: Load) -> tuple[Program, ...]:
    """Programs with these outlines, one for each core; `load` is called when something else of them is asked for.

    Raises:
        ValueError, KeyError, TypeError: the document is not what `outlines` wrote.
    """
    if not document:
        raise ValueError("no program")
    loaded = _Once(load)
    return tuple([_program(each, core, len(document), loaded) for core, each in enumerate(document)])


class _Once:
    """Programs that are loaded by whoever asks first."""

    def __init__(self, load: Load) -> None:
        self._load: Load | None = load
        self._lock = lock()
        self._loaded: tuple[Program, ...] = ()

    def __call__(self) -> tuple[Program, ...]:
        with self._lock:
            if self._load is not None:
                self._loaded, self._load = self._load(), None  # what it reads from is not needed any more
            return self._loaded


_LATER = ("inputs", "outputs", "body", "location", "edges", "fences", "placement", "passed")


class StoredProgram(Program):
    """A program that equals the stored one; its instructions are decoded when somebody asks for them.

    From then on its inputs and outputs are those that the instructions name. Raises ArtifactError where something is
    asked for that cannot be decoded.
    """

    __slots__ = ("_loaded",)
    _loaded: _Once

    def __getattr__(self, name: str) -> Any:  # called for attributes that are not set
        if name not in _LATER:
            raise AttributeError(name)
        found = self._loaded()[self.core]
        for each in _LATER:
            setattr(self, each, getattr(found, each))
        return getattr(found, name)


def _program(written: Any, core: int, cores: int, loaded: _Once) -> StoredProgram:
    """All fields but those of `_LATER` that the outline does not have, which stay unset."""
    program = StoredProgram.__new__(StoredProgram)
    program.name, program.target, program.core, program.cores = (
        str(written["name"]),
        str(written["target"]),
        core,
        cores,
    )
    program.inputs = [buffer_read(each) for each in written["inputs"]]
    known = {buffer.id: buffer for buffer in program.inputs}
    program.outputs = [_view_read(each, known) for each in written["outputs"]]
    program._loaded = loaded
    return program


def buffer_written(buffer: Buffer) -> list[Any]:
    """A buffer as JSON, without the bytes of a constant."""
    shape = list(buffer.shape)
    return [buffer.id, buffer.name, buffer.region.value, shape, buffer.dtype.name, buffer.role, buffer.address]


def buffer_read(written: Sequence[Any], data: bytes | None = None) -> Buffer:
    """The buffer that `buffer_written` wrote; `data` are its bytes if it is a constant."""
    number, name, region, shape, dtype, role, address = written
    place = None if address is None else (int(address[0]), int(address[1]))
    sizes = tuple([int(size) for size in shape])
    return Buffer(
        id=int(number),
        name=str(name),
        region=MemoryRegion(region),
        shape=sizes,
        dtype=BY_NAME[dtype],
        address=place,
        role=str(role),
        data=data,
    )


def _view_written(view: View) -> list[Any]:
    return [buffer_written(view.buffer), view.dtype.name, list(view.shape), list(view.strides), view.offset]


def _view_read(written: Sequence[Any], known: dict[int, Buffer]) -> View:
    """The view; those of one buffer have the same."""
    whose, dtype, shape, strides, offset = written
    found = buffer_read(whose)
    buffer = known.setdefault(found.id, found)
    sizes, steps = tuple([int(size) for size in shape]), tuple([int(step) for step in strides])
    return View(buffer, BY_NAME[dtype], sizes, steps, int(offset))
