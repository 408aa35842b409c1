"""Collectives whose sizes are only known while they run: all_gather_v and all_to_all_v, also split in two."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from nki.collectives.shared import (
    ENGINES,
    GROUP,
    PRIORITY,
    SINGLE,
    SOURCE,
    HbmSources,
    Priority,
    Ranks,
    SomeHbmDestinations,
    bits_of,
    described,
    elements,
    exchanged,
    flat_parts,
    members_of,
    size_of_group,
)
from nki.core.dtypes import uint32
from nki.core.errors import ArgumentError, ExecutionError, FrontendError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.spec.arrays import Arrays
from nki.spec.cost_collective import collective, prepares
from nki.spec.instruction import Instruction, NkiInstruction, instruction, issue_again
from nki.spec.operand import DMA_REACHABLE, Flag, Name, out
from nki.spec.program import Issued
from nki.spec.replica_group import ReplicaGroup
from nki.spec.rule import Rule
from nki.spec.sink import current_sink

_GATHER_RANKS = 4
_SPLIT = "nki/api/generated/nki.collectives.all_to_all_v_prepare (NKI 0.7)"
_COUNT, _OFFSET, _RECEIVED, _PLACE = range(4)

_Metadata = Annotated[NkiTensor, out(DMA_REACHABLE, (uint32,), dma=True, also_read=True, partial=True)]

_METADATA = Rule(
    "metadata",
    "metadata_tensor has 3 rows, or 4 with has_rdispls, and a column for each rank; in SBUF on one partition: "
    "(1, rows, ranks)",
    lambda a, t: a.metadata_tensor.shape == _metadata_shape(a),
    f"{SOURCE} all_to_all_v",
    "allocate it with that shape",
    lambda a, t: f"metadata_tensor is {a.metadata_tensor.describe()}, there are {size_of_group(a)} ranks",
)

_SLOTS = Rule(
    "slots",
    "dst has equally many elements for each rank",
    lambda a, t: elements(a.dsts[0]) % size_of_group(a) == 0,
    f"{SOURCE} all_gather_v",
    "make the size of dst a multiple of the number of ranks",
    lambda a, t: f"{size_of_group(a)} ranks, dsts are {described(a.dsts)}",
)

_FOUR_RANKS = Rule(
    "ranks",
    "each rank list has 4 ranks, those of one chip (or 1, which the hardware does not support)",
    lambda a, t: size_of_group(a) in (1, _GATHER_RANKS),
    f"{SOURCE} all_gather_v, Current limitations",
    "use all_gather among other ranks",
    lambda a, t: f"there are {size_of_group(a)} ranks",
)

_NO_PLACES = Rule(
    "rdispls",
    "has_rdispls=True is not supported",
    lambda a, t: not a.has_rdispls,
    f"{SOURCE} all_gather_v, Current limitations",
    "omit has_rdispls",
    lambda a, t: "has_rdispls is True",
)

_VARIABLE = [GROUP, SINGLE, _METADATA, _SLOTS, PRIORITY]
_GATHER = [*_VARIABLE, _FOUR_RANKS, _NO_PLACES]


def _metadata_shape(a: Any) -> tuple[int, ...]:
    rows = (4 if a.has_rdispls else 3, size_of_group(a))
    return (1, *rows) if a.metadata_tensor.on_chip else rows


def _row(metadata: View, row: int) -> View:
    """One row of the table, with a first dimension of size 1."""
    *_, rows, columns = metadata.strides
    outer = metadata.strides[:1] if metadata.on_chip else (rows,)
    return metadata._replace(
        shape=(1, metadata.shape[-1]), strides=(*outer, columns), offset=metadata.offset + row * rows
    )


def _table(a: Any, x: Arrays) -> np.ndarray:
    """The rows of the metadata that are inputs."""
    rows = (_COUNT, _OFFSET, *((_PLACE,) if a.has_rdispls else ()))
    return np.stack([np.array(x.load_raw(_row(a.metadata_tensor, row))[0], np.int64) for row in rows])


def _send(a: Any, x: Arrays, label: str, to_all: bool) -> None:
    """Every rank gets from each rank the chunk that the sender's table names, and puts it where its own table says.

    Args:
        to_all: whether senders have one chunk for all ranks, in the first column.
    """
    src, dst = a.srcs[0], a.dsts[0]
    own = _table(a, x)
    members = members_of(a.replica_group, x, label)
    place, brought = exchanged(a, x, label, (bits_of(x, src).reshape(-1), own))
    slot = elements(dst) // len(brought)
    counts = []
    for sender, (source, table) in enumerate(brought):
        count, offset = (int(number) for number in table[:2, 0 if to_all else place])
        start = int(own[2, sender]) if a.has_rdispls else slot * sender
        _check_chunk(label, (members[sender], members[place]), (count, offset, start), (len(source), elements(dst)))
        for part, first, size in flat_parts(dst, start, count):
            x.store_raw(part, source[offset + first : offset + first + size].reshape(1, -1))
        counts.append(count)
    if not a.recv_counts_known:
        x.store_raw(_row(a.metadata_tensor, _RECEIVED), np.array([counts], np.uint32))


def _check_chunk(label: str, ranks: tuple[int, int], chunk: tuple[int, int, int], sizes: tuple[int, int]) -> None:
    count, offset, start = chunk
    if offset + count > sizes[0] or start + count > sizes[1]:
        raise ExecutionError(
            "collective.size",
            f"{label} of rank {ranks[0]} sends {count} elements from {offset} of {sizes[0]} "
            f"to {start} of {sizes[1]} of rank {ranks[1]}",
            rule="what the metadata names lies inside the tensors",
            source=SOURCE,
            fix="correct the metadata, or allocate larger tensors",
        )


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=_GATHER,
    steps=collective("AllGatherV", "all_gather", "srcs"),
    effects=("ranks",),
)
def all_gather_v(
    srcs: HbmSources,
    dsts: SomeHbmDestinations,
    replica_group: Ranks,
    metadata_tensor: _Metadata,
    recv_counts_known: Flag = False,
    has_rdispls: Flag = False,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Every rank gets one chunk of the source of each rank; the ranks choose their chunks while they run.

    Tensors count as flat. Rank r's chunk is ``src[metadata[1, 0]:][:metadata[0, 0]]`` and lies at the start of the
    r-th of equally large slots of `dst`.

    Args:
        srcs, dsts: one tensor each, in HBM, of one dtype.
        replica_group: lists of 4 ranks, those of one chip, in a launch with two cores per rank. One rank alone, which
            hardware does not support, is accepted so that the instruction can be tried out in one process.
        metadata_tensor: uint32, 3 rows and a column for each rank, in HBM, or with a first dimension of 1 in SBUF. Row
            0 and 1: size and offset of the chunk, in their first column; row 2 is written: how much came from each
            rank.
        recv_counts_known: leave row 2 as it is.
        has_rdispls: not supported.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@all_gather_v.body
def _(a: Any, x: Arrays) -> None:
    _send(a, x, "all_gather_v", to_all=True)


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=SOURCE,
    rules=_VARIABLE,
    steps=collective("AllToAllV", "all_to_all", "srcs"),
    effects=("ranks",),
)
def all_to_all_v(
    srcs: HbmSources,
    dsts: SomeHbmDestinations,
    replica_group: Ranks,
    metadata_tensor: _Metadata,
    recv_counts_known: Flag = False,
    has_rdispls: Flag = False,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """Every rank sends a chunk of its source to each rank; sizes and offsets are only known while it runs.

    Tensors count as flat. On hardware the ranks are those of several nodes, or of whole devices behind a NeuronSwitch.

    Args:
        srcs, dsts: one tensor each, in HBM, of one dtype.
        replica_group: which ranks exchange chunks.
        metadata_tensor: uint32, 3 rows (4 with `has_rdispls`) and a column for each rank, in HBM, or with a first
            dimension of 1 in SBUF. Row 0 and 1: size and offset in `src` of the chunk for each rank; row 2 is written:
            how much came from each rank; row 3: where in `dst` it goes.
        recv_counts_known: leave row 2 as it is.
        has_rdispls: row 3 says where chunks go; else each rank has one of equally large slots of `dst`.
        priority: 0 (highest) to 3, where the target has DMA priorities.
    """


@all_to_all_v.body
def _(a: Any, x: Arrays) -> None:
    _send(a, x, "all_to_all_v", to_all=False)


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=_SPLIT,
    rules=_GATHER,
    public=False,
    steps=prepares("AllGatherVSetup"),
    effects=("ranks",),
)
def all_gather_v_setup(
    srcs: HbmSources,
    dsts: SomeHbmDestinations,
    replica_group: Ranks,
    metadata_tensor: _Metadata,
    recv_counts_known: Flag = False,
    has_rdispls: Flag = False,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """The first half of `all_gather_v`, which reads the metadata: what `all_gather_v_prepare` issues."""


@all_gather_v_setup.body
def _(a: Any, x: Arrays) -> None:
    members_of(a.replica_group, x, "all_gather_v_prepare")


@instruction(
    moves_bits=True,
    engines=ENGINES,
    source=_SPLIT,
    rules=_VARIABLE,
    public=False,
    steps=prepares("AllToAllVSetup"),
    effects=("ranks",),
)
def all_to_all_v_setup(
    srcs: HbmSources,
    dsts: SomeHbmDestinations,
    replica_group: Ranks,
    metadata_tensor: _Metadata,
    recv_counts_known: Flag = False,
    has_rdispls: Flag = False,
    priority: Priority = None,
    name: Name = None,
) -> None:
    """The first half of `all_to_all_v`, which reads the metadata: what `all_to_all_v_prepare` issues."""


@all_to_all_v_setup.body
def _(a: Any, x: Arrays) -> None:
    members_of(a.replica_group, x, "all_to_all_v_prepare")


def all_gather_v_prepare(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The first half of `all_gather_v`, which does not need the contents of `srcs` yet.

    Returns:
        what `all_gather_v_trigger` takes. There is exactly one trigger for each prepare, and no other prepare between.

    Raises:
        FrontendError: another prepare waits for its trigger (``collective.prepared``).
    """
    _check_slot(all_gather_v_setup)
    return _prepared(
        all_gather_v_setup(srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority, name)
    )


def all_gather_v_trigger(prepare_instr: NkiInstruction, name: str | None = None) -> NkiInstruction:
    """The second half of an `all_gather_v`: moves the data.

    Args:
        prepare_instr: what `all_gather_v_prepare` returned; it also says what to move where.
        name: of the instruction.

    Raises:
        FrontendError: it is not the prepare that waits for its trigger (``collective.prepared``).
    """
    return _trigger(prepare_instr, all_gather_v_setup, all_gather_v, name)


def all_to_all_v_prepare(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The first half of `all_to_all_v`, which does not need the contents of `srcs` yet.

    Returns:
        what `all_to_all_v_trigger` takes. There is exactly one trigger for each prepare, and no other prepare between.

    Raises:
        FrontendError: another prepare waits for its trigger (``collective.prepared``).
    """
    _check_slot(all_to_all_v_setup)
    return _prepared(
        all_to_all_v_setup(srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority, name)
    )


def all_to_all_v_trigger(prepare_instr: NkiInstruction, name: str | None = None) -> NkiInstruction:
    """The second half of an `all_to_all_v`: moves the data.

    Args:
        prepare_instr: what `all_to_all_v_prepare` returned; it also says what to move where.
        name: of the instruction.

    Raises:
        FrontendError: it is not the prepare that waits for its trigger (``collective.prepared``).
    """
    return _trigger(prepare_instr, all_to_all_v_setup, all_to_all_v, name)


def _check_slot(setup: Instruction[Any]) -> None:
    waiting = current_sink(setup.label).prepared
    if waiting is not None:
        raise _pairing(f"{setup.label} while the one at {waiting.location} waits for its trigger")


def _prepared(handle: NkiInstruction) -> NkiInstruction:
    current_sink(handle.issued.instruction.label).prepared = handle.issued
    return handle


def _trigger(
    prepare: NkiInstruction, setup: Instruction[Any], run: Instruction[Any], name: str | None
) -> NkiInstruction:
    sink = current_sink(run.label)
    if not isinstance(prepare, NkiInstruction) or prepare.issued.instruction is not setup:
        raise ArgumentError(
            "collective.trigger",
            f"the trigger of {run.label} got {prepare!r}"[:160],
            rule=f"a trigger takes what {run.label}_prepare returned",
            source=_SPLIT,
            fix=f"handle = {run.name}_prepare(...), then {run.name}_trigger(handle)",
        )
    if sink.prepared is not prepare.issued:
        raise _pairing(f"the prepare of {run.label} at {prepare.issued.location} does not wait for a trigger")
    arguments = run.arguments(*prepare.issued.arguments)._replace(name=name)
    issued = Issued(run, arguments, sink.locator.capture(), run.engine_for(arguments, sink.target))
    issue_again(issued, sink)
    sink.prepared = None
    return NkiInstruction(issued).depends_on(prepare)


def _pairing(message: str) -> FrontendError:
    return FrontendError(
        "collective.prepared",
        message,
        rule="each prepare is followed by exactly one trigger, with no other prepare between",
        source=_SPLIT,
        fix="trigger the first one before the next prepare",
    )
