"""Streams hold all that is in a program, at its physical addresses, each queue its own part."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.asm.streams import Access, Begin, Command, Pass, Register, Streams, queue_of, semaphore_of
from nki.core.dtypes import BY_NAME
from nki.core.errors import IRError
from nki.core.tensor import Buffer, View
from nki.spec.program import Issued, Program, Sync, Wait
from nki.testing.equality import differences
from tests.asm.compiled import compiled, examples, loops, replaced, summed
from tests.ir.kernels import array, traced


def test_every_example_survives() -> None:
    assert len(examples()) > 400
    for program in examples():
        back = raise_(lower(program))
        assert differences(program, back) == []
        assert back.placement == program.placement


def test_a_difference_would_be_seen() -> None:
    """What is left out of the streams is missing in the program."""
    program = compiled(loops())
    streams = lower(program)
    changed = dataclasses.replace(streams, passed=("allocate_and_schedule",))
    assert differences(program, raise_(changed)) != []


def test_fences_and_edges_survive() -> None:
    program = compiled(summed())
    program.edges, program.fences = [(0, 2), (1, 3)], [(1, 4)]
    assert differences(program, raise_(lower(program))) == []


@pytest.mark.parametrize("empty", [True, False])
def test_loops_without_instructions_survive(empty: bool) -> None:
    """Blocks that only hold loops have a schedule or none, and a loop without instructions has a queue all the same."""
    program = compiled(loops())
    loop = program.body.items[0]
    loop.body.items = []  # type: ignore[union-attr]
    loop.body.sync = [] if empty else None  # type: ignore[union-attr]
    program.body.items, program.body.sync = [loop], [None] if empty else None
    streams = lower(program)
    assert [stream.queue for stream in streams.streams] == ["sync"]
    assert differences(program, raise_(streams)) == []


def test_each_queue_has_its_instructions_and_all_loops() -> None:
    """The nested loops run on dma0, vector and dma2; dma1 has an instruction in the outer one only."""
    streams = lower(compiled(loops()))
    assert [stream.queue for stream in streams.streams] == ["vector", "dma0", "dma1", "dma2"]
    seen = {stream.queue: [_short(entry) for entry in stream.entries] for stream in streams.streams}
    assert seen == {
        "vector": ["begin 1", "begin 2", "3 tensor_scalar", "end 2", "end 1", "pass 3"],
        "dma0": ["begin 1", "begin 2", "2 dma_copy", "end 2", "end 1", "begin 3", "7 dma_copy", "end 3"],
        "dma1": ["begin 1", "pass 2", "5 dma_copy", "end 1", "pass 3"],
        "dma2": ["begin 1", "begin 2", "4 dma_copy", "end 2", "end 1", "pass 3", "8 dma_copy"],
    }
    outer, inner = [entry for entry in streams.streams[0].entries if isinstance(entry, Begin)]
    assert (outer.bounds, outer.step) == ((0, 4), 2)
    assert inner.bounds == (outer.register, Register(2))


def _short(entry: Any) -> str:
    if isinstance(entry, Command):
        return f"{entry.position} {entry.opcode}"
    return f"{type(entry).__name__.lower()} {entry.loop}"


def test_buffers_have_symbols() -> None:
    def kernel(a: Any) -> Any:
        table = nl.shared_constant(np.eye(64, dtype=np.float32))
        kept = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((64, 64), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=kept, src=a)
        nisa.dma_copy(dst=out, src=kept)
        nisa.dma_copy(dst=tile, src=table)
        nisa.dma_copy(dst=out[0:64, :], src=tile)
        return out

    streams = lower(compiled(traced(kernel, array())[0]))
    assert sorted(streams.symbols) == ["const0", "input0", "internal0", "output0", "sbuf0"]
    constant = streams.buffers[streams.symbols.index("const0")]
    assert constant.data == np.eye(64, dtype=np.float32).tobytes()


def test_semaphores_are_numbered_by_queue() -> None:
    names = ["tensor", "vector", "scalar", "gpsimd", "sync", "dma0", "dma15", "dma123"]
    assert [semaphore_of(name) for name in names] == [0, 1, 2, 3, 4, 5, 20, 128]
    assert [queue_of(number) for number in (0, 1, 2, 3, 4, 5, 20, 128)] == names
    for wrong in ("", "dma", "dma01", "dma-1", "dma٣", "vectors", "dma1000000000000"):
        assert semaphore_of(wrong) is None


def test_waits_are_for_semaphores() -> None:
    streams = lower(compiled(summed()))
    waiting = {c.position: [(w.semaphore, w.count) for w in c.waits] for s in streams.streams for c in s.commands()}
    assert waiting == {0: [], 1: [(5, 1)], 2: [(6, 1)], 3: [], 4: [(1, 2)]}


def test_addresses_are_those_of_the_elements() -> None:
    """Every element of an operand on chip, counted through the view, is where the access says."""
    compared = 0
    for program in (each for each in examples()[::5] if not loops_in(each)):
        streams = lower(program)
        commands = {command.position: command for stream in streams.streams for command in stream.commands()}
        for position, issued in enumerate(program.body.walk()):
            for value, operand in zip(issued.arguments, commands[position].operands, strict=True):
                if isinstance(operand, Access) and value.on_chip and value.dynamic is None and value.size <= 4096:
                    assert _places(value, program) == _places_of(operand, streams)
                    compared += 1
    assert compared > 300


def loops_in(program: Program) -> bool:
    """Whether positions count loops too."""
    return any(not isinstance(item, Issued) for item in program.body.items)


def _places(view: View, program: Program) -> set[tuple[int, int]]:
    """(partition, byte) of every element, from the definition of a view: elements are numbered row by row."""
    partition, byte = _base(view.buffer, program)
    size = view.dtype.itemsize
    row = view.buffer.row_bytes // size
    elements = (view.offset + number for number in _sums(view.shape, view.strides))
    return {(partition + element // row, byte + element % row * size) for element in elements}


def _places_of(access: Access, streams: Streams) -> set[tuple[int, int]]:
    """The same from the access alone: the first pair walks over partitions, the others over bytes."""
    buffer, size = streams.buffers[access.buffer], BY_NAME[access.dtype].itemsize
    row = prod(buffer.shape[1:]) * BY_NAME[buffer.dtype].itemsize // size
    (stride, count), *free = access.pattern
    assert count == 1 or stride % row == 0
    return {
        (access.partition + number * stride // row, access.byte + step * size)
        for number in range(count)
        for step in _sums([n for _, n in free], [s for s, _ in free])
    }


def _sums(counts: Any, strides: Any) -> Iterator[int]:
    for index in itertools.product(*(range(count) for count in counts)):
        yield sum(i * stride for i, stride in zip(index, strides, strict=True))


def _base(buffer: Buffer, program: Program) -> tuple[int, int]:
    assert program.placement is not None
    return buffer.address or program.placement[buffer.id]


def test_what_is_not_compiled_is_refused() -> None:
    for code, change in (
        ("asm.unscheduled", lambda p: setattr(p.body, "sync", None)),
        ("asm.unplaced", lambda p: setattr(p, "placement", None)),
        ("asm.unplaced", lambda p: p.placement.clear()),
        ("asm.queue", lambda p: p.body.sync.__setitem__(0, Sync("dma"))),
        ("asm.queue", lambda p: p.body.sync.__setitem__(0, Sync("dma0", (Wait("nobody", 1),)))),
    ):
        program = compiled(summed())
        change(program)
        with pytest.raises(IRError) as caught:
            lower(program)
        assert caught.value.code == code


def test_an_argument_without_a_form_is_refused_at_its_line() -> None:
    with pytest.raises(IRError, match=r"operand0 is \{1\}") as caught:
        lower(replaced(compiled(summed()), 2, operand0={1}))
    assert caught.value.code == "asm.value"
    assert caught.value.location.frames


def test_a_tensor_of_a_loop_ends_with_it() -> None:
    program = compiled(loops())
    inner: Any = program.body.items[0]
    copy = inner.body.items[0].body.items[0]
    program.body.items[2] = copy
    with pytest.raises(IRError) as caught:
        lower(program)
    assert caught.value.code == "asm.scope"


def test_a_queue_passes_by_a_loop_it_is_not_in() -> None:
    streams = lower(compiled(loops()))
    passing = {s.queue: [e.loop for e in s.entries if isinstance(e, Pass)] for s in streams.streams}
    assert passing == {"vector": [3], "dma0": [], "dma1": [2, 3], "dma2": [3]}
