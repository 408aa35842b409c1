"""Plans on disk: plain data in the private directory of the native code, whose rules they share.

A plan holds no address: functions have their names in it, tensors the numbers of their base addresses. Its words lead
native code to memory, so that it is trusted as far as native code is and no further: files that this user alone can
write, with a checksum, for the same installation, processor and program. It is never part of an artifact. Whatever is
not what was written is not used, and the plan is made anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nki.core.tensor import Buffer, MemoryRegion
from nki.native import cpu_features
from nki.native.objects import blobs
from nki.native.operand_layout import HEADER, Place
from nki.native.plan.cache_layout import FIRST_BUFFER, ON_CHIP, Chunk, Layout
from nki.native.plan.steps import BlockSteps, ExecutionPlan, Stretch, recorded
from nki.native.plan.stored_columns import IssuedAt, Later, RenamedOperands
from nki.native.plan.transfer_elision import Elsewhere
from nki.options import Options
from nki.spec.program import Program
from nki.store.keys import key_of
from nki.store.outline import buffer_read, buffer_written

_LENGTH = (1 << 32) - 1
Named = Mapping[int, str]
Found = tuple[list[Layout], list[ExecutionPlan]]


class _Columns(NamedTuple):
    """The arrays of one core.

    Attributes:
        words: of the plan, with the number of its name in place of the address of a function.
        starts: where records begin.
        at, item: where the records of an instruction begin, and its number as `recorded` counts.
        after: pairs as in `Stretch`.
        chunks: id, start and pitch of each.
        elsewhere: id and fields of each.
        renamed: the number of the instruction and the other fields of each.
        complete: ids of device buffers.
        constants: the bytes of all constants.
    """

    words: np.ndarray
    starts: np.ndarray
    at: np.ndarray
    item: np.ndarray
    after: np.ndarray
    chunks: np.ndarray
    elsewhere: np.ndarray
    renamed: np.ndarray
    complete: np.ndarray
    constants: np.ndarray


def plan_key(artifact: str, options: Options, threads: int) -> str:
    """The key of the plans of the programs that are kept as `artifact`."""
    several = threads > 1
    return key_of("plan", artifact=artifact, matmul=options.matmul, several=several, processor=cpu_features.digest())


def packed(
    programs: Sequence[Program], layouts: Sequence[Layout], plans: Sequence[ExecutionPlan], names: Named
) -> bytes | None:
    """Plans as bytes; None for those that leave something to the NumPy machine, which needs the instructions anyway.

    Args:
        names: of the functions, by address.
    """
    numbers: dict[str, int] = {}
    cores: list[Any] = []
    arrays: list[np.ndarray] = []
    for program, layout, plan in zip(programs, layouts, plans, strict=True):
        stretches = [item for item in plan.steps.items if isinstance(item, Stretch)]
        if plan.interpreted or layout.doubtful or len(stretches) != len(plan.steps.items):
            return None
        words, starts = _without_addresses(plan.words, names, numbers)
        cores.append(_core(layout, plan, stretches))
        arrays += _columns(program, layout, stretches, words, starts)
    return blobs.written({"functions": list(numbers), "cores": cores}, arrays)


def functions_of(document: Any) -> list[str]:
    """The names of the functions that plans need."""
    return [str(name) for name in document["functions"]]


def unpacked(
    document: Any, arrays: Sequence[np.ndarray], programs: Sequence[Program], addresses: Sequence[int]
) -> Found | None:
    """What `packed` packed, for the same programs, with functions at these addresses; None if it is something else."""
    try:
        count = len(_Columns._fields)
        if len(document["cores"]) != len(programs) or len(arrays) != count * len(programs):
            return None
        layouts, plans = [], []
        for number, (core, program) in enumerate(zip(document["cores"], programs, strict=True)):
            columns = _Columns._make(arrays[number * count : (number + 1) * count])
            layouts.append(_layout(core, columns, program))
            plans.append(_plan(core, columns, program, addresses))
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    return layouts, plans


def _without_addresses(words: array[int], names: Named, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The words with numbers of names, which are given out here, and where records begin."""
    plain = np.array(words, np.int64)
    starts, at, end = [], 0, len(words)
    while at < end:
        starts.append(at)
        at += words[at + 1] & _LENGTH
    found = np.array(starts, np.int64)
    known, which = np.unique(plain[found], return_inverse=True)
    of = np.array([numbers.setdefault(names[int(address)], len(numbers)) for address in known], np.int64)
    plain[found] = of[which]
    return plain, found


def _core(layout: Layout, plan: ExecutionPlan, stretches: Sequence[Stretch]) -> dict[str, Any]:
    """What is not in columns."""
    return {
        "stretches": [[stretch.start, stretch.end, stretch.work] for stretch in stretches],
        "registers": list(plan.registers.items()),
        "trips": list(plan.trips.items()),
        "numbers": [plan.fuel, plan.context, plan.panels, plan.native, layout.bases, layout.pool_bytes],
        "inputs": [layout.place(buffer) for buffer in layout.inputs],
        "buffers": [
            [buffer_written(b), layout.place(b), None if b.data is None else len(b.data)] for b in layout.buffers
        ],
        "reach": [[region.value, size] for region, size in layout.reach.items()],
    }


def _columns(
    program: Program, layout: Layout, stretches: Sequence[Stretch], words: np.ndarray, starts: np.ndarray
) -> _Columns:
    order = {id(item): number for number, item in enumerate(recorded(program.body))}
    issued = [(at, order[id(item)]) for stretch in stretches for at, item in stretch.issued.items()]
    given = {buffer.id for buffer in layout.buffers}
    return _Columns(
        words=words,
        starts=starts,
        at=_flat([at for at, _ in issued]),
        item=_flat([number for _, number in issued]),
        after=_flat([value for stretch in stretches for pair in stretch.after.items() for value in pair]),
        chunks=_flat([value for key, chunk in layout.chunks.items() for value in (key, *chunk)]),
        elsewhere=_flat([value for key, place in layout.elsewhere.items() for value in (key, *place)]),
        renamed=_flat([value for each in layout.renamed for value in (order[id(each.issued)], *each[1:])]),
        complete=_flat(sorted(layout.complete & given)),
        constants=np.frombuffer(b"".join(b.data for b in layout.buffers if b.data is not None), np.uint8),
    )


def _flat(numbers: Sequence[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def _layout(core: Any, columns: _Columns, program: Program) -> Layout:
    *_, bases, pool_bytes = core["numbers"]
    constants, at = columns.constants.tobytes(), 0
    buffers: list[Buffer] = []
    places: dict[int, Place] = {}
    for written, place, size in core["buffers"]:
        data = None if size is None else constants[at : at + size]
        at += size or 0
        buffers.append(buffer_read(written, data))
        places[buffers[-1].id] = _place(place, bases)
    for buffer, place in zip(program.inputs, core["inputs"], strict=True):
        places[buffer.id] = _place(place, bases)
    return Layout(
        inputs=program.inputs,
        outputs=program.outputs,
        buffers=buffers,
        places=places,
        chunks=Later(columns.chunks, Chunk),
        elsewhere=Later(columns.elsewhere, Elsewhere),
        renamed=RenamedOperands(columns.renamed, program),
        bases=bases,
        pool_bytes=_natural(pool_bytes),
        doubtful=frozenset(),
        complete=frozenset(columns.complete.tolist()),
        outermost=frozenset(),
        reach={MemoryRegion(region): _natural(size) for region, size in core["reach"]},
        placement={},
    )


def _place(written: Sequence[Any], bases: int) -> Place:
    *numbers, large = written
    base, start, pitch, memory = [_natural(number) for number in numbers]
    if type(large) is not bool:
        raise ValueError(f"{large!r} where a truth value was expected")
    if base not in ON_CHIP.values() and not FIRST_BUFFER <= base < bases:
        raise ValueError(f"base {base} of {bases}")
    return Place(base, start, pitch, memory, large)


def _natural(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no size")
    return number


def _plan(core: Any, columns: _Columns, program: Program, addresses: Sequence[int]) -> ExecutionPlan:
    fuel, context, panels, native, bases, _ = [_natural(number) for number in core["numbers"]]
    words, starts = columns.words.copy(), columns.starts
    _check_records(words, starts, len(addresses))
    words[starts] = np.array(addresses, np.int64)[words[starts]]
    known = set(starts.tolist())
    if not known.issuperset(columns.at.tolist()) or len(columns.at) != len(columns.item):
        raise ValueError("an instruction without a record")
    issued = IssuedAt(columns.at, columns.item, program)
    after = dict(zip(columns.after[::2].tolist(), columns.after[1::2].tolist(), strict=True))
    steps = BlockSteps()
    for start, end, work in core["stretches"]:
        if start not in known or not (end in known or end == len(words)):
            raise ValueError(f"a stretch from {start} to {end}")
        steps.items.append(Stretch(start, end, issued, after, float(work)))
    trips = {_natural(number): _natural(word) for number, word in core["trips"]}
    if any(not bases <= word < context for word in trips.values()):
        raise ValueError("a counter of trips outside of the context")
    plain = array("q")
    plain.frombytes(words.tobytes())
    return ExecutionPlan(
        words=plain,
        steps=steps,
        registers=dict(core["registers"]),
        fuel=fuel,
        context=context,
        panels=panels,
        native=native,
        interpreted=0,
        reasons={},
        trips=trips,
    )


def _check_records(words: np.ndarray, starts: np.ndarray, functions: int) -> None:
    """Each record ends where the next one begins, and has a function."""
    if not len(starts) or words.dtype != np.int64 or starts.dtype != np.int64:
        raise ValueError("no records")
    if starts[0] != 0 or starts.min() < 0 or starts.max() + HEADER > len(words):
        raise ValueError("records outside of the words")
    ends = starts + (words[starts + 1] & _LENGTH)
    if (ends[:-1] != starts[1:]).any() or ends[-1] != len(words) or (ends - starts < HEADER).any():
        raise ValueError("records are not one after another")
    if words[starts].min() < 0 or words[starts].max() >= functions:
        raise ValueError("a record without a function")
