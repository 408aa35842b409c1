"""Movement between the partitions of a quadrant by Vector: nc_stream_shuffle."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from nki.core.nki_tensor import NkiTensor
from nki.spec.arrays import Arrays
from nki.spec.cost import OLDER, streams
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Ints, Name, Src, out
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa nc_stream_shuffle"
KEEP = 255
"""Mask entry of a partition that stays as it is."""


def _sources(a: Any, t: Target) -> np.ndarray:
    """The partition of src, counted from its first one, that each partition of dst takes; -1 keeps it."""
    partition = np.arange(a.dst.shape[0])
    chosen = np.asarray(a.shuffle_mask)[partition % t.quadrant]
    return np.where(chosen == KEEP, -1, partition // t.quadrant * t.quadrant + chosen)


def _active(a: Any, t: Target) -> int:
    """Partitions that the engine works on: whole quadrants."""
    most = max(a.src.shape[0], a.dst.shape[0])
    return int(-(-most // t.quadrant) * t.quadrant)


def _legal_starts(a: Any, t: Target) -> tuple[int, ...]:
    return t.access.start_partitions(_active(a, t))


def _starts(a: Any, t: Target) -> bool:
    legal = _legal_starts(a, t)
    return a.src.start_partition in legal and a.dst.start_partition in legal


def _mask_fits(a: Any, t: Target) -> bool:
    return len(a.shuffle_mask) == t.quadrant and all(0 <= m < t.quadrant or m == KEEP for m in a.shuffle_mask)


@instruction(
    moves_bits=True,
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        Rule(
            "dtypes",
            "src and dst have the same dtype",
            lambda a, t: a.dst.dtype == a.src.dtype,
            _ISA,
            "cast with nisa.tensor_copy",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        Rule(
            "elements",
            "src and dst have equally many elements per partition",
            lambda a, t: a.dst.free_size == a.src.free_size,
            _ISA,
            "slice one of them",
            lambda a, t: f"dst has {a.dst.free_size} elements per partition, src {a.src.free_size}",
        ),
        Rule(
            "mask",
            "shuffle_mask has {t.quadrant} entries, each a partition of the quadrant or 255",
            _mask_fits,
            _ISA,
            "write one entry per partition of a quadrant; the same mask serves all quadrants",
            lambda a, t: f"shuffle_mask has {len(a.shuffle_mask)} entries: {list(a.shuffle_mask)}",
        ),
        Rule(
            "mask-source",
            "shuffle_mask names partitions that src has",
            lambda a, t: not _mask_fits(a, t) or int(_sources(a, t).max()) < a.src.shape[0],
            _ISA,
            "make src as tall as the partitions that are read, or shuffle quadrant by quadrant",
            lambda a, t: f"src has {a.src.shape[0]} partitions, partition {int(_sources(a, t).max())} is read",
        ),
        Rule(
            "start-partition",
            "src and dst start where the larger of them, in whole quadrants of {t.quadrant}, may start",
            _starts,
            _ISA,
            "move the operand to another start partition, or shuffle quadrant by quadrant",
            lambda a, t: (
                f"src starts at partition {a.src.start_partition}, dst at {a.dst.start_partition}, "
                f"{_active(a, t)} partitions may start at {_legal_starts(a, t)}"
            ),
        ),
    ],
    steps=streams("StreamShuffle", "src", "dst", source="", estimate=OLDER),
)
def nc_stream_shuffle(
    dst: Annotated[NkiTensor, out(also_read=True)], src: Src, shuffle_mask: Ints, name: Name = None
) -> None:
    """Partition i of each quadrant of `dst` takes partition ``shuffle_mask[i]`` of the same quadrant of `src`.

    Quadrants are 32 partitions, counted from the start of each operand, which may lie in different quadrants; one mask
    serves all of them. The entry 255 leaves the partition of `dst` as it is. In place is legal. Bits are moved, never
    cast.

    Args:
        dst, src: SBUF or PSUM, the same dtype and elements per partition. The larger of both, rounded up to whole
            quadrants, decides where they may start: 32 partitions at 0, 32, 64 or 96, 64 at 0 or 64, more at 0.
        shuffle_mask: 32 ints, 0 to 31 or 255.
    """


@nc_stream_shuffle.body
def _(a: Any, x: Arrays) -> None:
    width = a.src.free_size
    first = _sources(a, x.target)[:, None]
    x.gather(a.dst, a.src, np.where(first < 0, -1, first * width + np.arange(width)))
