"""Streams that no program has are refused, with a code that says what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from nki.asm.lower import lower
from nki.asm.print import to_text
from nki.asm.raising import raise_
from nki.asm.streams import Access, Begin, Command, Entry, Indirect, Register, Stream, Streams
from nki.core.errors import ArtifactError, ExecutionError, NkiError
from nki.core.source import Location
from nki.testing.assembly import parse
from tests.asm.compiled import compiled, loops, summed
from tests.together import together


def edited(streams: Streams, queue: str, edit: Callable[[list[Entry]], Any]) -> Streams:
    """The streams with the entries of one queue changed."""
    made = []
    for stream in streams.streams:
        entries = list(stream.entries)
        if stream.queue == queue:
            edit(entries)
        made.append(Stream(stream.queue, tuple(entries)))
    return dataclasses.replace(streams, streams=tuple(made))


def code_of(streams: Streams) -> str:
    with pytest.raises(NkiError) as caught:
        raise_(streams)
    return caught.value.code


@together(
    "old, new, code",
    [
        # values
        ("op0=nl.multiply", "op0=nl.nothing", "asm.value"),
        ("op0=nl.multiply", 'op0="multiply"', "asm.value"),
        ("op=nl.add", "", "asm.value"),
        ("reverse0=false", "reverse0=0", "asm.value"),
        ("engine=.unknown", "engine=.warp", "asm.value"),
        ("operand0=0.5", "operand0=%0", "asm.value"),
        ("operand0=0.5", "operand0=[1 2]", "asm.value"),
        ("on vector", "on warp", "asm.value"),
        ("wait dma0:1", "wait dma0:0", "asm.value"),
        # accesses
        ("data1=$sbuf0(p0+128 ", "data1=$sbuf0(p0+130 ", "asm.access"),
        ("data1=$sbuf0(p0+128 ", "data1=$sbuf0(p1+128 ", "asm.access"),
        ("data1=$sbuf0(p0+128 ", "data1=$sbuf0(p0+64 ", "asm.access"),
        ("data1=$sbuf0(p0+128 float32 128:64", "data1=$sbuf0(p0+128 float32 129:64", "asm.access"),
        ("data1=$sbuf0(p0+128 float32 128:64", "data1=$sbuf0(p0+128 float32 -128:64", "asm.access"),
        ("data1=$sbuf0(p0+128 float32", "data1=$sbuf0(p0+128 float31", "asm.access"),
        ("data1=$sbuf0(p0+128 float32 128:64", "data1=$sbuf0(p0+128 float32 1:999999999999999999", "asm.access"),
        # tables
        (" placed 0:128", " placed -1:128", "asm.table"),
        (" placed 0:128", "", "asm.table"),
        (" temporary in 0", " temporal in 0", "asm.table"),
        ("sbuf float32 [128 64]", "sbuf float32 []", "asm.table"),
        ("sbuf float32 [128 64]", "sbuf float32 [128 -64]", "asm.table"),
        ("sbuf float32 [128 64]", "sbuf float32 [9999999999 9999999999]", "asm.table"),
        ("core 0 of 1", "core 1 of 1", "asm.table"),
        ('pass "allocate_and_schedule"', 'pass "a,b"', "asm.table"),
        (" temporary in 0 placed 0:128 @", " temporary in 0 placed 0:128 @999", "asm.table"),
        # order
        ("\n  2 tensor_scalar", "\n  7 tensor_scalar", "asm.order"),
        ("\n  2 tensor_scalar", "\n  1 tensor_scalar", "asm.order"),
        (" scheduled @0", " @0", "asm.order"),
        ("assembly 1\n", "assembly 1\nregister %0 5\n", "asm.order"),
        ("assembly 1\n", "assembly 1\nlocation @0\n", "asm.syntax"),
    ],
)
def test_one_change(old: str, new: str, code: str) -> None:
    text = to_text(lower(compiled(summed())))
    assert old in text
    with pytest.raises(ArtifactError) as caught:
        raise_(parse(text.replace(old, new, 1)))
    assert caught.value.code == code


def test_buffers_and_registers_have_numbers_of_their_own() -> None:
    streams = lower(compiled(loops()))
    buffers = list(streams.buffers)
    buffers[1] = dataclasses.replace(buffers[1], id=buffers[0].id)
    assert code_of(dataclasses.replace(streams, buffers=tuple(buffers))) == "asm.table"
    registers = (streams.registers[1], *streams.registers[1:])
    assert code_of(dataclasses.replace(streams, registers=registers)) == "asm.table"


def test_loops_match() -> None:
    streams = lower(compiled(loops()))
    begin = streams.streams[0].entries[0]
    assert isinstance(begin, Begin)
    assert code_of(edited(streams, "vector", lambda e: e.pop())) == "asm.order"  # it does not pass the last loop
    assert code_of(edited(streams, "vector", lambda e: e.pop(3))) == "asm.order"  # an end is missing
    assert code_of(edited(streams, "vector", lambda e: e.pop(0))) == "asm.order"
    assert (
        code_of(edited(streams, "vector", lambda e: e.__setitem__(0, dataclasses.replace(begin, step=1))))
        == "asm.order"
    )
    assert code_of(edited(streams, "vector", lambda e: e.reverse())) == "asm.order"


def test_a_step_is_not_zero() -> None:
    text = to_text(lower(compiled(loops()))).replace("step 2", "step 0")
    assert code_of(parse(text)) == "asm.value"


def test_a_tensor_of_a_loop_is_used_in_it() -> None:
    streams = lower(compiled(loops()))
    tile = streams.symbols.index("sbuf0")

    def outside(entries: list[Entry]) -> None:
        command = entries[-1]
        assert isinstance(command, Command)
        access = command.operands[0]
        assert isinstance(access, Access)
        used = dataclasses.replace(access, buffer=tile, partition=0, byte=128, pattern=((16, 128), (1, 16)))
        entries[-1] = dataclasses.replace(command, operands=(used, *command.operands[1:]))

    assert code_of(edited(streams, "dma2", outside)) == "asm.access"


@pytest.mark.parametrize(
    ("indirect", "code"),
    [
        (Indirect("scalar_offset", Register(9), 1), "asm.table"),
        (Indirect("vector_offset", Register(0), 1), "asm.access"),
        (Indirect("sideways", Access(0, 0, 0, "float32", ()), 1), "asm.access"),
        (Indirect("scalar_offset", Access(99, 0, 0, "float32", ()), 1), "asm.access"),
        (Indirect("scalar_offset", Register(0), 1 << 60), "asm.access"),
    ],
)
def test_indices(indirect: Indirect, code: str) -> None:
    streams = lower(compiled(loops()))

    def replace_index(entries: list[Entry]) -> None:
        command = entries[-1]
        assert isinstance(command, Command)
        access = command.operands[0]
        assert isinstance(access, Access)
        used = dataclasses.replace(access, indirect=indirect)
        entries[-1] = dataclasses.replace(command, operands=(used, *command.operands[1:]))

    assert code_of(edited(streams, "dma2", replace_index)) == code


def test_an_index_of_an_index_has_a_limit() -> None:
    access = Access(0, 0, 0, "float32", ((1, 1),))
    for _ in range(10):
        access = dataclasses.replace(access, indirect=Indirect("scalar_offset", access, 1))
    streams = lower(compiled(summed()))
    assert code_of(dataclasses.replace(streams, outputs=(access,))) == "asm.access"


def test_locations_have_limits() -> None:
    streams = lower(compiled(summed()))
    (frame, *_), rest = streams.locations[1].frames, streams.locations[2:]
    for frames in (
        (frame,) * 5000,
        (dataclasses.replace(frame, line=-1),),
        (dataclasses.replace(frame, column=1 << 30),),
    ):
        locations = (streams.locations[0], Location(frames), *rest)
        assert code_of(dataclasses.replace(streams, locations=locations)) == "asm.table"


def test_edges_and_fences_name_instructions() -> None:
    streams = lower(compiled(summed()))
    assert code_of(dataclasses.replace(streams, edges=((0, 5),))) == "asm.table"
    assert code_of(dataclasses.replace(streams, fences=((2, 2),))) == "asm.table"
    with pytest.raises(ExecutionError):
        raise_(dataclasses.replace(streams, edges=((2, 1),)))


def test_a_queue_is_there_once() -> None:
    streams = lower(compiled(summed()))
    twice = (*streams.streams, Stream(streams.streams[0].queue, ()))
    assert code_of(dataclasses.replace(streams, streams=twice)) == "asm.table"
    assert code_of(dataclasses.replace(streams, streams=(*streams.streams, Stream("gpsimd", ())))) == "asm.order"
