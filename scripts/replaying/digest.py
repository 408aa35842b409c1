"""Digests of compiled programs and of arrays: equal while nothing changes but where the package's code lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
from scripts.replaying.case import Found
from scripts.replaying.places import bare, line

from nki.asm.lower import lower
from nki.asm.print import to_text as assembly
from nki.asm.streams import Begin, BufferEntry, Command, Entry, Stream, Streams
from nki.core.source import Location
from nki.ir.build import build
from nki.ir.text import to_text
from nki.spec.program import Block, Issued, Program
from nki.target.load import load_target
from nki.timing.cores import timelines

_LENGTH = 16
"""Hexadecimal digits that are kept of a digest."""


def digest(parts: Iterable[str | bytes]) -> str:
    """The beginning of the SHA-256 of texts and bytes, each with its length."""
    made = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(b"%d:" % len(data))
        made.update(data)
    return made.hexdigest()[:_LENGTH]


def of_programs(programs: Sequence[Program]) -> Found:
    """IR, streams and makespan of compiled programs, one for each core; names of passes do not count."""
    programs = [replace(program, passed=()) for program in programs]
    target = load_target(programs[0].target)
    makespan = max(timeline.makespan for timeline in timelines(programs, target))
    return {
        "ir": digest([to_text(build(programs), locations=False), *_lines(programs)]),
        "streams": digest(assembly(movable(lower(program)), comments=False) for program in programs),
        "makespan": repr(float(makespan)),
    }


def of_arrays(arrays: Iterable[Any]) -> str:
    """Dtypes, shapes and bytes, in order."""
    return digest(part for array in arrays for part in _parts(np.asarray(array)))


def _parts(array: np.ndarray) -> Iterator[str | bytes]:
    yield f"{array.dtype.name} {array.shape}"
    yield np.ascontiguousarray(array).tobytes()


def _lines(programs: Iterable[Program]) -> Iterator[str]:
    """The user's lines of kernels, buffers, instructions and loops, in the order of the programs."""
    for program in programs:
        yield line(program.location)
        yield from (line(buffer.location) for buffer in program.inputs)
        yield from _lines_of(program.body)


def _lines_of(block: Block) -> Iterator[str]:
    yield from (line(buffer.location) for buffer in block.buffers)
    for item in block.items:
        yield line(item.location)
        if not isinstance(item, Issued):
            yield from _lines_of(item.body)


def movable(streams: Streams) -> Streams:
    """Streams without locations in the package; those that are equal then are one."""
    known: dict[Location, int] = {}
    numbers = [known.setdefault(bare(location), len(known)) for location in streams.locations]

    def moved(entry: Entry) -> Entry:
        return replace(entry, location=numbers[entry.location]) if isinstance(entry, Command | Begin) else entry

    return replace(
        streams,
        location=numbers[streams.location],
        locations=tuple(known),
        buffers=tuple(_moved_buffer(buffer, numbers) for buffer in streams.buffers),
        streams=tuple(_moved_stream(stream, moved) for stream in streams.streams),
    )


def _moved_buffer(buffer: BufferEntry, numbers: Sequence[int]) -> BufferEntry:
    return replace(buffer, location=numbers[buffer.location])


def _moved_stream(stream: Stream, moved: Callable[[Entry], Entry]) -> Stream:
    return replace(stream, entries=tuple(map(moved, stream.entries)))
