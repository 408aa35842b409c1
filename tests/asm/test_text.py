"""Textual assembly: it reads back, people can read it, and mistakes are named with their line."""

from __future__ import annotations

import dataclasses
import re

import pytest

from nki.asm.lower import lower
from nki.asm.print import stream_lines, to_text
from nki.asm.streams import Immediate
from nki.core.errors import ArtifactError
from nki.testing.assembly import parse
from tests.asm.compiled import compiled, examples, loops, replaced, summed


def test_every_example_reads_back() -> None:
    for program in examples():
        streams = lower(program)
        assert parse(to_text(streams)) == streams
        assert parse(to_text(streams, comments=False)) == streams


def test_what_a_queue_does() -> None:
    streams = lower(compiled(loops()))
    vector = streams.of("vector")
    assert vector is not None
    lines = [re.sub(r"  # kernels.py:\d+$", "  # line", line) for line in stream_lines(streams, vector)]
    tile = "$sbuf0(p0+128 float32 128:16 16:1)"
    assert lines == [
        "  0 loop 1 for %0 from 0 to 4 step 2 scheduled @2  # line",
        "    1 loop 2 for %1 from %0 to %2 step 1 scheduled @3  # line",
        f"      3 tensor_scalar on vector dst={tile} data={tile} op0=nl.add operand0=1.0 reverse0=false reverse1=false "
        "engine=.unknown wait dma0:1 signal @6  # line",
        "    end 2",
        "  end 1",
        "  pass 3",
    ]


def test_spaces_comments_and_empty_lines_do_not_matter() -> None:
    streams = lower(compiled(loops()))
    head, *rest = to_text(streams).splitlines()
    loose = "\n".join([head, "", *(f" \t{line.replace('(', ' ( ').replace('=', ' = ')}   # x = (" for line in rest)])
    assert "dst = $sbuf0 ( p0+128" in loose
    assert parse(loose) == streams


@pytest.mark.parametrize("value", [-0.0, 1e300, float("inf"), 10**30, True, 0.1])
def test_numbers_are_exact(value: float) -> None:
    streams = lower(replaced(compiled(summed()), 2, operand0=value))
    assert parse(to_text(streams)) == streams


def test_a_nan_keeps_its_bits() -> None:
    streams = lower(compiled(summed()))
    text = to_text(streams).replace("operand0=0.5", "operand0=nan:fff8000000001234")
    (command,) = [c for s in parse(text).streams for c in s.commands() if c.opcode == "tensor_scalar"]
    assert Immediate("float", 0xFFF8000000001234) in command.operands
    assert "nan:fff8000000001234" in to_text(parse(text))


def test_odd_names_are_quoted() -> None:
    streams = dataclasses.replace(lower(compiled(summed())), name='a "b" # \n ü \\', passed=("x y", ""))
    assert parse(to_text(streams)) == streams


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("assembly 1", "assembly 2", "line 1: the first line is `assembly 1`"),
        ("assembly 1", "kernel", "line 1: assembly is expected"),
        ("kernel ", "colonel ", "line 2: colonel is no integer"),
        (" target ", " tarjet ", "target is expected, not tarjet"),
        ('"x"', '"x', "is not expected"),
        ("$sbuf0 2", "$sbuf1 2", "symbol $sbuf1"),
        ("op=nl.add", "op=add", "add is no operand"),
        ("op=nl.add", "op=nl.add op=nl.add", "@NUMBER is expected, not op"),
        ("tensor_tensor on", "tensor_tensors on", "there is no instruction tensor_tensors"),
        ("data1=$sbuf0(p0+", "data1=$sbuf9(p0+", "there is no buffer $sbuf9"),
        ("data1=$sbuf0(p0+", "data1=$sbuf0(q0+", "an access starts like"),
        ("wait dma0:1", "wait dmax:1", "a wait is QUEUE:COUNT"),
        ("wait dma0:1", "wait dma0:x", "a wait is QUEUE:COUNT"),
        ("queue vector", "", "an entry comes after its queue"),
        ("location @1", "location @7", "number 7 where 1 is next"),
        ("location @1 1", "location @1 99", "frames"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str) -> None:
    text = to_text(lower(compiled(summed())))
    assert old in text
    with pytest.raises(ArtifactError, match=re.escape(message)) as caught:
        parse(text.replace(old, new, 1))
    assert caught.value.code == "asm.syntax"
    assert re.search(r"line \d+", caught.value.message)


def test_depth_and_digits_have_limits() -> None:
    text = to_text(lower(compiled(summed())))
    for wrong in ("[" * 5000, "9" * 5000, "1e999"):
        with pytest.raises(ArtifactError):
            parse(text.replace("operand0=0.5", f"operand0={wrong}"))


def test_text_that_is_none() -> None:
    for text in ("", "assembly 1", "\0", "assembly 1\nqueue vector\nend 1"):
        with pytest.raises(ArtifactError):
            parse(text)
