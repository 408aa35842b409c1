"""Results that are used again: what was already computed from the same, unchanged inputs is not computed once more.

The profile of the second version of the Mamba tutorial (nki/guides/tutorials/fused_mamba.rst, mamba_v2.png) has one
product less for every state than its listing: ``deltaU`` is written inside the loop over the states, and both of its
inputs were loaded before it. Version one loads them for every state again, which stays as it is written.

An instruction without effects is a function of its arguments and of the bytes that it reads, rounding included: equal
ones on equal bytes leave equal bytes. Only stochastic rounding draws new bits each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from operator import itemgetter
from struct import pack
from typing import Any, NamedTuple

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, MemoryRegion, View, contiguous_strides
from nki.passes.analysis.free_bytes import FreeBytes
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.ordered_positions import ordered_positions
from nki.passes.context import Context, rewriting
from nki.passes.editing.merge import merged
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Instruction
from nki.spec.program import Block, Issued, Program

_CHOICES = frozenset({"operator", "enum", "flag", "int", "ints", "pattern", "text"})

_strides = lru_cache(maxsize=1024)(contiguous_strides)

Key = tuple[Any, ...]
"""What an instruction computes: equal keys in one run of a block are equal results."""


def run(program: Program, context: Context) -> Program:
    """Read the earlier result in place of an equal later one, and drop the instruction that computes the later one.

    Both stand in one block; whatever lies between them counts as executed, loops included. A result is a whole tensor
    in SBUF that the allocator places and nothing else ever writes. What the kernel orders itself stays, and so does
    what nobody reads. As the device's compiler does it, both come from one line of the kernel, as in a loop over its
    users, and what DMA stores stays as well: kernels that measure an instruction repeat it into tensors that they only
    store, or never look at, and published measurements of such streams count every one of them.
    """
    if context.options.stochastic_rounding or program.placement is not None:
        return program
    writes: dict[int, int] = {}
    returned = {view.buffer.id for view in program.outputs}
    stored = set(returned)
    if not _repeats(_candidates(program.body, writes, stored), writes):
        return program
    search = _Search(program, context, writes, stored if context.imitation.merged_lines == "one" else returned)
    search.block(program.body)
    if not search.dropped:
        return program
    return merged(program, search.dropped, search.names)


class _ResultPositions(NamedTuple):
    """What the declaration of an instruction says: where its results stand.

    Attributes:
        writes: positions of all tensors that are written.
        stores: positions of those that DMA reads.
        result: position of the tensor whose bytes may be used again, -1 if there is none.
        anywhere: whether it may be on any engine, because it reads no tensor.
        values: positions of what may be a tensor, a number or a register, the result left out.
        choices: gives all other arguments, which are equal if they compare so.
    """

    writes: tuple[int, ...]
    stores: tuple[int, ...]
    result: int
    anywhere: bool
    values: tuple[int, ...]
    choices: Callable[[Any], Any]


@cache  # one for each declared instruction
def _plan(instruction: Instruction[Any]) -> _ResultPositions:
    """A result is overwritten in full and not read, and the engine reaches all operands itself: none is in HBM."""
    operands = list(instruction.operands.values())
    tensors = [(place, operands[place]) for place, _ in instruction.tensor_positions]
    writes = tuple(place for place, operand in tensors if operand.writes)
    suits = bool(writes) and all(operand.engine_access for _, operand in tensors)
    suits = suits and not any(operand.writes and (operand.reads or operand.partial) for _, operand in tensors)
    result = writes[0] if suits else -1
    choices = [place for place, operand in enumerate(operands) if operand.kind in _CHOICES]
    values = tuple(place for place in range(len(operands)) if place != result and place not in choices)
    reads = any(operand.reads for _, operand in tensors)
    stores = tuple(place for place, operand in tensors if operand.reads and not operand.engine_access)
    return _ResultPositions(
        writes, stores, result, not reads, values, itemgetter(*choices) if choices else lambda _: None
    )


def _buffers(arguments: Any, places: tuple[int, ...]) -> list[int]:
    """The buffers of some operands of an instruction."""
    if len(places) == 1 and type(arguments[places[0]]) is View:
        return [arguments[places[0]].buffer.id]
    values = [arguments[place] for place in places]
    return [v.buffer.id for value in values if value for v in ((value,) if type(value) is View else value)]


def _candidates(block: Block, writes: dict[int, int], stored: set[int]) -> list[list[Issued]]:
    """The instructions of each block that may be equal to others.

    Counts how often every buffer is written, and collects those that DMA reads.
    """
    own: list[Issued] = []
    found = [own]
    for item in block.items:
        if type(item) is not Issued:
            found += _candidates(item.body, writes, stored)  # type: ignore[union-attr]
            continue
        instruction, arguments, _, engine = item
        plan = _plan(instruction)
        for number in _buffers(arguments, plan.writes):
            writes[number] = writes.get(number, 0) + 1
        if plan.stores:
            stored.update(_buffers(arguments, plan.stores))
        if plan.result >= 0 and (engine is Engine.vector or engine is Engine.scalar or plan.anywhere):
            own.append(item)
    return found


def _repeats(blocks: list[list[Issued]], writes: dict[int, int]) -> bool:
    """Whether any two are alike as they stand; if not, there is nothing to look for."""
    for candidates in blocks:
        seen = set()
        for instruction, arguments, _, _ in candidates:
            place = _plan(instruction).result
            result = arguments[place]
            if writes[result.buffer.id] != 1 or result.buffer.region is not MemoryRegion.sbuf:
                continue
            key = (instruction, result.shape, arguments[:place], arguments[place + 1 :])
            if key in seen:
                return True
            seen.add(key)
    return False


class _Search:
    """One walk over a program that finds equal results.

    Attributes:
        names: for a buffer whose instruction is dropped, by id, the one with the same bytes.
        dropped: ids of the records of the dropped instructions.
    """

    def __init__(self, program: Program, context: Context, writes: dict[int, int], stored: set[int]) -> None:
        self.names: dict[int, Buffer] = {}
        self.dropped: set[int] = set()
        live = liveness(program)
        self._writes = writes
        self._stored = stored  # and what is returned
        self._lines = context.imitation.merged_lines
        self._first = {buffer.id: first for buffer, first, _ in live.buffers}
        self._last = {buffer.id: last for buffer, _, last in live.buffers}
        self._room = FreeBytes(live.positions, live.buffers, context.target, context.imitation.merged_room)
        self._ordered = ordered_positions(program, live.positions)
        self._written: dict[int, int] = {}  # the last position so far that writes a buffer
        self._fence = -1
        self._position = 0

    def block(self, block: Block) -> None:
        """Look through a block; those in it are looked through on their own, and count with what they write."""
        own = {buffer.id for buffer in block.buffers}
        results: dict[Key, Buffer] = {}
        for item in block.items:
            if type(item) is not Issued:
                self.block(item.body)  # type: ignore[union-attr]
                continue
            plan = _plan(item.instruction)
            if not self._again(item, plan, own, results):
                for number in _buffers(item.arguments, plan.writes):
                    self._written[number] = self._position
                if "fence" in item.instruction.effects(item.arguments):
                    self._fence = self._position
            self._position += 1

    def _again(self, issued: Issued, plan: _ResultPositions, own: set[int], results: dict[Key, Buffer]) -> bool:
        """Whether an instruction is dropped, for a result that is still there; otherwise later ones may use its own."""
        if plan.result < 0 or self._ordered[self._position] or not self._is_result(issued, plan, own):
            return False
        key = self._key(issued, plan)
        if key is None:
            return False
        buffer = issued.arguments[plan.result].buffer
        earlier = results.get(key)
        if earlier is None or not self._room.take(self._last[earlier.id] + 1, self._position, earlier.row_bytes):
            # Without room the later result takes the place of the earlier one, because it is nearer to those to come.
            results[key] = buffer
            return False
        self._last[earlier.id] = max(self._last[earlier.id], self._last[buffer.id])
        self.names[buffer.id] = earlier
        self.dropped.add(id(issued))
        return True

    def _is_result(self, issued: Issued, plan: _ResultPositions, own: set[int]) -> bool:
        """Whether an instruction writes one tensor of its block, all of it, that others read and nobody else writes."""
        instruction, arguments, _, engine = issued
        if not (plan.anywhere or engine is Engine.vector or engine is Engine.scalar):
            return False
        view = arguments[plan.result]
        buffer = view.buffer
        return (
            self._writes[buffer.id] == 1
            and buffer.id in own
            and buffer.address is None
            and buffer.region is MemoryRegion.sbuf
            and buffer.id not in self._stored
            and self._first[buffer.id] == self._position < self._last[buffer.id]
            and view[1:] == (buffer.dtype, buffer.shape, _strides(buffer.shape), 0, None)
            and not instruction.effects(arguments)
        )

    def _key(self, issued: Issued, plan: _ResultPositions) -> Key | None:
        """What is computed where, with each input as it was last written; None if that cannot be told.

        A second result counts as an input: the earlier instruction has written its own since, so that no two are equal.
        """
        instruction, arguments, location, engine = issued
        own = arguments[plan.result].buffer
        line = location.frame if self._lines == "one" else None
        key = [instruction, engine, line, self._fence, own.shape, own.dtype, plan.choices(arguments)]
        for place in plan.values:
            value = arguments[place]
            if type(value) is View:
                buffer = self.names.get(value.buffer.id, value.buffer)
                if buffer.address is not None or value.dynamic is not None:
                    return None
                key += (buffer.id, self._written.get(buffer.id, -1), value[1:])
            elif isinstance(value, VirtualRegister | tuple):  # a sequence may have tensors in it
                return None
            else:  # 0.0 is not -0.0, and 1 is not 1.0
                key.append(pack("d", value) if isinstance(value, float) else (type(value), value))
        return tuple(key)


PASS = rewriting("cse", "Use results again that were computed from the same inputs before.", run)
