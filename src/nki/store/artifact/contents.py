"""What an artifact has: the names of its members, and all of it as an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nki.asm.streams import Begin, Streams
from nki.spec.program import Program
from nki.store.artifact import header as head
from nki.store.artifact.header import Header
from nki.store.artifact.metadata import Provenance
from nki.store.artifact.model import ModelPart

IR, META, DEBUG = "kernel.mlir", "meta.json", "debug.json"
MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel, checked.

    Attributes:
        header: of the file.
        programs: one for each core, verified for their target.
        streams: one for each core, equal to what `lower` makes of the programs.
        origin: what nothing else in the file repeats.
        meta: ``meta.json``.
        sizes: bytes of the members by name.
        model: what makes a model of the programs; None for a kernel.
    """

    header: Header
    programs: tuple[Program, ...]
    streams: tuple[Streams, ...]
    origin: Provenance
    meta: Mapping[str, Any]
    sizes: Mapping[str, int]
    model: ModelPart | None = None


def header_of(streams: Sequence[Streams], origin: Provenance, model: bool = False) -> Header:
    """The header of an artifact with these streams, without its digest."""
    features = head.CORES * (len(streams) > 1) | head.MODEL * model
    features |= head.CONSTANTS * any(buffer.data is not None for one in streams for buffer in one.buffers)
    features |= head.LOOPS * any(isinstance(e, Begin) for one in streams for s in one.streams for e in s.entries)
    return Header.of(origin.package_version, streams[0].name, len(streams), features)
