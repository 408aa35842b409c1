"""What an instruction touches: bytes of memory, registers, and state that instructions share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, FreeIndirection, MemoryRegion, ScalarOffset, VectorOffset, View
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Instruction
from nki.spec.program import Issued, Program
from nki.target.model import Target

Space = str | int
"""Where bytes lie: "sbuf" and "psum" are the real memories of the core; a number is the buffer with that id."""

Resource = tuple[str, int | str]
"""State beside memory: ``("register", id)``, ``("accumulator", engine)``, ``("random", engine)``, ``("print", "")``."""

Dims = tuple[tuple[int, int], ...]
_PER_ENGINE = frozenset({"accumulator", "random"})
_MOST_PATTERNS = 1 << 14


class Footprint:
    """A set of bytes; one object for each set of one `Outlines`, so that ``is`` compares.

    Byte b of partition p is touched for every p from `first` to before `after` and every b in
    ``low + sum(k * stride for (stride, k < count) in dims) + [0, run)``. Strides descend and are larger than `run`;
    without `dims` the bytes are contiguous. HBM is one row: partition 0. Addresses count from the start of the space.

    Attributes:
        high: one more than the last byte.
        hbm: whether it is device memory.
        fixed: whether it is device memory that no core writes: its reads keep to no side of a meeting.
        label: the name of the memory, or of the tensor that is a space of its own, for people.
        static: False if a dynamic address chooses among these bytes, so that fewer are touched than listed.
    """

    __slots__ = ("after", "dims", "first", "fixed", "hbm", "high", "label", "low", "run", "space", "static")

    def __init__(
        self,
        space: Space,
        label: str,
        rows: tuple[int, int],
        low: int,
        dims: Dims,
        run: int,
        *,
        hbm: bool = False,
        static: bool = True,
        fixed: bool = False,
    ) -> None:
        self.space = space
        self.label = label
        self.first, self.after = rows
        self.low = low
        self.high = low + run
        for stride, count in dims:
            self.high += stride * (count - 1)
        self.dims = dims
        self.run = run
        self.hbm = hbm
        self.fixed = fixed
        self.static = static

    def __repr__(self) -> str:
        steps = "".join(f" step {stride} x {count}" for stride, count in self.dims)
        rows = "" if self.hbm else f" partitions {self.first}:{self.after}"
        return f"{self.label}{rows} bytes {self.low}:{self.high}" + (f" ({self.run} each{steps})" if steps else "")


class Touched(NamedTuple):
    """Everything that one instruction touches.

    Attributes:
        reads, writes: bytes; what is read and written is in both.
        uses, sets: other state that is read, and that is written (or must keep its order).
        rendezvous: meets the other core, which orders all accesses to HBM around it.
        fence: touches memory that is not an operand, so that it keeps its order with everything.
    """

    reads: list[Footprint]
    writes: list[Footprint]
    uses: list[Resource]
    sets: list[Resource]
    rendezvous: bool
    fence: bool

    @property
    def hbm(self) -> bool:
        """Whether device memory is accessed that a core may write."""
        return any(f.hbm and not f.fixed for f in self.reads) or any(f.hbm for f in self.writes)


class _AccessPositions(NamedTuple):
    """Which arguments of an instruction say what it touches: ``(position, reads, writes)``."""

    tensors: tuple[tuple[int, bool, bool], ...]
    registers: tuple[tuple[int, bool, bool], ...]
    accumulate: int | None


class _Relative(NamedTuple):
    """A view without the address of its tensor: rows and bytes count from the start of that.

    Attributes:
        number: among all of one `Outlines`.
        granule: unit of bytes that is touched as a whole; 0 for the bytes of the view alone.
    """

    number: int
    buffer: Buffer
    rows: tuple[int, int]
    low: int
    dims: Dims
    run: int
    granule: int
    static: bool


class Outline(NamedTuple):
    """What an instruction touches wherever its tensors lie: as `Touched`, but with `Footprint`s by number."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    uses: list[Resource]
    sets: list[Resource]
    rendezvous: bool
    fence: bool


class Outlines:
    """What instructions touch, before it is known where tensors lie: the same for all orders and placements.

    An instruction that comes again is known by its identity, and so is a set of bytes.
    """

    def __init__(self, target: Target) -> None:
        self.relatives: list[_Relative] = []
        self._granule = target.psum.accumulate_granule_bytes
        # Of each view by identity, with the view, so that its id stays its own: its hash takes longer.
        self._bytes: dict[int, tuple[View, int]] = {}
        self._granules: dict[int, tuple[View, int]] = {}
        self.footprints: dict[Any, Footprint] = {}
        self._known: dict[Any, int] = {}
        self._patterns: dict[Any, tuple[tuple[int, int], int, Dims, int]] = {}
        self._seen: dict[int, tuple[Issued, Outline]] = {}  # with the instruction, so that its id stays its own

    def of(self, issued: Issued) -> Outline:
        """Everything that an instruction touches."""
        seen = self._seen.get(id(issued))
        if seen is None:
            seen = self._seen[id(issued)] = issued, self._outline(issued)
        return seen[1]

    def view(self, view: View) -> int:
        """The number of the relative of a view."""
        found = self._bytes.get(id(view))
        if found is None:
            found = self._bytes[id(view)] = view, self._relative(view, 0)
        return found[1]

    def _in_granules(self, view: View) -> int:
        """The number of the relative of a view, with whole granules of PSUM."""
        found = self._granules.get(id(view))
        if found is None:
            found = self._granules[id(view)] = view, self._relative(view, self._granule)
        return found[1]

    def _outline(self, issued: Issued) -> Outline:
        instruction, arguments, _, engine = issued
        plan = _plan(instruction)
        reads: list[int] = []
        writes: list[int] = []
        uses: list[Resource] = []
        sets: list[Resource] = []
        accumulates = plan.accumulate is not None and arguments[plan.accumulate] is not False
        for position, is_read, is_written in plan.tensors:
            value = arguments[position]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                if view.dynamic is not None:
                    self._index(view.dynamic.indices, reads, uses)
                # A matmul adds to what is there, in whole granules of PSUM (trainium_inferentia2_arch.rst, Near-memory
                # accumulation).
                adds = is_written and accumulates
                number = self._in_granules(view) if adds else self.view(view)
                if is_read or adds:
                    reads.append(number)
                if is_written:
                    writes.append(number)
        for position, is_read, is_written in plan.registers:
            register = arguments[position]
            if isinstance(register, VirtualRegister):
                if is_written:
                    sets.append(("register", register.id))
                if is_read or not is_written:
                    uses.append(("register", register.id))
        effects = instruction.effects(arguments)
        if not effects:
            return _new_tuple(Outline, (tuple(reads), tuple(writes), uses, sets, False, False))
        sets += _states(effects, engine)
        return Outline(tuple(reads), tuple(writes), uses, sets, "rendezvous" in effects, "fence" in effects)

    def _index(self, indices: View | VirtualRegister, reads: list[int], uses: list[Resource]) -> None:
        if isinstance(indices, VirtualRegister):
            uses.append(("register", indices.id))
        else:
            reads.append(self.view(indices))

    def _relative(self, view: View, granule: int) -> int:
        buffer, _, _, _, _, dynamic = view
        rows, low, dims, run = self._pattern(view) if dynamic is None else _reached(view)
        key = (buffer.id, rows, low, dims, run, granule, dynamic is None)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.relatives)
            self.relatives.append(_new_tuple(_Relative, (found, buffer, *key[1:])))
        return found

    def _pattern(self, view: View) -> tuple[tuple[int, int], int, Dims, int]:
        """What `_reached` says of a view at a static address: equal for equal places of equal tensors."""
        buffer, *place, _ = view
        key = (buffer.layout, *place)
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = _reached(view)
        return found


_new_tuple = tuple.__new__
"""Makes a named tuple in half the time."""


class Accesses:
    """What the instructions of one program touch; footprints are computed once for each view.

    An on-chip tensor lies in its space at its explicit or allocated address. One that has none yet is a space of its
    own. Of a view with a dynamic address all bytes count that some value inside the tensor can reach.
    """

    def __init__(self, program: Program, target: Target, outlines: Outlines | None = None) -> None:
        """Nothing is known of the program yet.

        Args:
            outlines: of its instructions, if they were looked at in other programs.
        """
        self._placement = program.placement or {}
        self._outlines = Outlines(target) if outlines is None else outlines
        self._placed: dict[int, Footprint] = {}

    def of(self, issued: Issued) -> Touched:
        """Everything that an instruction touches."""
        reads, writes, uses, sets, rendezvous, fence = self._outlines.of(issued)
        return Touched(list(map(self.at, reads)), list(map(self.at, writes)), uses, sets, rendezvous, fence)

    def outline(self, issued: Issued) -> Outline:
        """Everything that an instruction touches, as numbers of footprints, which `at` gives."""
        return self._outlines.of(issued)

    def at(self, number: int) -> Footprint:
        """The footprint of a number."""
        return self._placed.get(number) or self._place(number)

    def footprint(self, view: View) -> Footprint:
        """The bytes of a view, or those that it can reach."""
        return self.at(self._outlines.view(view))

    def _place(self, number: int) -> Footprint:
        _, buffer, rows, low, dims, run, granule, static = self._outlines.relatives[number]
        space: Space = buffer.id
        label = buffer.name
        if buffer.on_chip:
            address = buffer.address or self._placement.get(buffer.id)
            if address is not None:
                space = label = "psum" if buffer.region is MemoryRegion.psum else "sbuf"
                rows, low = (rows[0] + address[0], rows[1] + address[0]), low + address[1]
        if granule:
            low, dims, run = _in_granules(low, dims, run, granule)
        key = (space, rows, low, dims, run, static)
        known = self._outlines.footprints
        found = known.get(key)
        if found is None:
            hbm, fixed = not buffer.on_chip, buffer.role == "fixed"
            found = known[key] = Footprint(space, label, rows, low, dims, run, hbm=hbm, static=static, fixed=fixed)
        self._placed[number] = found
        return found


def _reached(view: View) -> tuple[tuple[int, int], int, Dims, int]:
    """Partitions that a view reaches, first byte, steps and run."""
    return _partitions(view) if view.on_chip else (0, 1), *_bytes_of(view)


def _partitions(view: View) -> tuple[int, int]:
    """Partitions of the buffer that a view reaches."""
    dynamic = view.dynamic
    if isinstance(dynamic, ScalarOffset) and dynamic.scale and dynamic.scale % view.row == 0:
        return 0, view.buffer.partitions
    first = view.offset // view.row
    return first, first + view.shape[0]


def _bytes_of(view: View) -> tuple[int, Dims, int]:
    """First byte, steps and run of a view, from the start of its buffer's (partition) row."""
    size, row, dynamic = view.dtype.itemsize, view.row, view.dynamic
    start, inner = (view.offset % row, 1) if view.on_chip else (view.offset, 0)
    if dynamic is None:
        low, dims, run = _pattern(size, view.shape[inner:], view.strides[inner:])
        return start * size + low, dims, run
    if isinstance(dynamic, FreeIndirection):
        return _normal(start * size, (), (row - start) * size)
    if isinstance(dynamic, VectorOffset):
        inner = 1  # the rows lie where the indices say
    low, steps = _steps(size, view.shape[inner:], view.strides[inner:])
    low += start
    scale = abs(dynamic.scale)
    if scale and not (view.on_chip and scale % row == 0):
        if isinstance(dynamic, ScalarOffset):  # may be negative
            low %= scale
        reach = low + sum(stride * (count - 1) for stride, count in steps) // size + 1
        steps.append((scale * size, max(1, (row - reach) // scale + 1)))
    return _normal(low * size, steps, size)


@lru_cache(_MOST_PATTERNS)  # tiles of one shape have one pattern
def _pattern(size: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, Dims, int]:
    """First byte, steps and run of a view at a fixed address, from its offset: tiles of one shape have one pattern."""
    low, steps = _steps(size, shape, strides)
    return _normal(low * size, steps, size)


def _steps(size: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """The first element, from the offset, and steps in bytes, which are positive."""
    low, steps = 0, []
    for count, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += stride * (count - 1)
            stride = -stride
        if stride and count > 1:
            steps.append((stride * size, count))
    return low, steps


def _in_granules(low: int, dims: Dims, run: int, unit: int) -> tuple[int, Dims, int]:
    """All granules that a pattern touches; those in its gaps as well if its steps do not fit them."""
    left = list(dims)
    while left and (left[-1][0] <= unit or any(stride % unit for stride, _ in left)):
        stride, count = left.pop()
        run += stride * (count - 1)
    over = low % unit
    return _normal(low - over, left, -(-(run + over) // unit) * unit)


def _normal(low: int, steps: Iterable[tuple[int, int]], run: int) -> tuple[int, Dims, int]:
    """Steps sorted and merged, so that equal sets of bytes mostly have equal descriptions."""
    dims: list[tuple[int, int]] = []
    for stride, count in sorted(steps):
        if count == 1:
            continue
        if stride <= run and not dims:
            run += stride * (count - 1)
        elif dims and stride % dims[-1][0] == 0 and stride // dims[-1][0] <= dims[-1][1]:
            dims[-1] = (dims[-1][0], dims[-1][1] + stride // dims[-1][0] * (count - 1))
        else:
            dims.append((stride, count))
    return low, tuple(reversed(dims)), run


def _states(effects: tuple[str, ...], engine: Engine) -> list[Resource]:
    return [(name, engine.name if name in _PER_ENGINE else "") for name in effects if name != "fence"]


@cache  # one for each declared instruction
def _plan(instruction: Instruction[Any]) -> _AccessPositions:
    operands = list(enumerate(instruction.operands.items()))
    tensors = tuple((at, o.reads, o.writes) for at, (_, o) in operands if o.is_tensor)
    registers = tuple((at, o.reads, o.writes) for at, (_, o) in operands if o.kind.startswith("register"))
    return _AccessPositions(tensors, registers, next((at for at, (name, _) in operands if name == "accumulate"), None))
