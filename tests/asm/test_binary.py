"""The binary form: it reads back, its layout is the documented one, and damage is refused."""

from __future__ import annotations

import math
import struct
from random import Random

import pytest

from nki.asm.decode import decode
from nki.asm.encode import encode
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.asm.streams import Command, Immediate, Streams
from nki.asm.values import immediate, value_of
from nki.core.errors import ArtifactError, NkiError
from nki.spec.instruction import REGISTRY
from nki.testing.equality import differences
from tests.asm.compiled import compiled, examples, loops, replaced, summed


def test_every_example_reads_back() -> None:
    for program in examples():
        streams = lower(program)
        parts = encode(streams)
        assert decode(parts) == streams
        assert encode(lower(raise_(decode(parts)))) == parts


def test_the_layout_of_an_instruction() -> None:
    """Read by hand, as docs/assembly.md has it: the first instruction of `loops` on dma0, after two loop records."""
    parts = encode(lower(compiled(loops())))
    strings = _strings(parts["tables"])
    data = parts["dma0"]
    assert struct.unpack_from("<4sHHQI", data) == (b"NKAS", 1, 1, len(data), 8)
    assert struct.unpack_from("<BBHIIII3q", data, 20) == (2, 0b0011, 0, 1, 0, 2, 0, 0, 4, 2)
    assert struct.unpack_from("<BBHIIII3q", data, 64) == (2, 0b1111, 0, 2, 1, 3, 1, 0, 2, 1)
    count = len(REGISTRY["dma_copy"].operands)
    tag, signals, engine, operands, size, position, location, opcode, waits, zero = struct.unpack_from(
        "<BBBBIIIIHH", data, 108
    )
    assert (tag, signals, engine, operands, position, location, waits, zero) == (1, 1, 4, count, 2, 5, 0, 0)
    assert strings[opcode] == "dma_copy"
    at = 108 + 24
    kind, rank, indirect, zero, dtype, buffer = struct.unpack_from("<BBBBII", data, at)
    assert (kind, rank, indirect, zero, strings[dtype], buffer) == (11, 2, 0, 0, "float32", 2)
    assert struct.unpack_from("<6i", data, at + 12) == (0, 128, 16, 128, 1, 16)
    assert data[108 + size] == 3, "the end of the inner loop follows"


def _strings(tables: bytes) -> list[str]:
    (count,), at, found = struct.unpack_from("<I", tables, 16), 20, []
    for _ in range(count):
        (size,) = struct.unpack_from("<I", tables, at)
        found.append(tables[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return found


def test_instructions_are_small() -> None:
    """A transfer of two-dimensional tiles takes at most 140 bytes, a tensor_tensor 170."""
    streams = lower(compiled(summed()))
    parts = encode(streams)
    assert len(parts["dma0"]) - 20 <= 140
    assert len(parts["vector"]) - 20 <= 2 * 170


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, 5e-324, 1, True, 0.1, 10**30, -(10**30), -1])
def test_numbers_are_exact(value: float) -> None:
    program = replaced(compiled(summed()), 2, operand0=value)
    back = raise_(decode(encode(lower(program))))
    assert differences(program, back) == []


def test_the_bits_of_a_nan_are_kept() -> None:
    (odd,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000001234))
    tensor_scalar = REGISTRY["tensor_scalar"]
    made = immediate(odd, tensor_scalar, "operand0")
    assert made == Immediate("float", 0xFFF8000000001234)
    assert struct.pack("<d", value_of(made, tensor_scalar, "operand0")) == struct.pack("<d", odd)


def test_one_and_true_are_different() -> None:
    true, one = (encode(lower(replaced(compiled(summed()), 2, operand0=value))) for value in (True, 1))
    assert true != one


def test_numbers_without_room_are_refused() -> None:
    with pytest.raises(ArtifactError) as caught:
        encode(lower(replaced(compiled(summed()), 2, operand0=1 << 5000)))
    assert caught.value.code == "asm.range"


def test_every_cut_is_refused() -> None:
    parts = encode(lower(compiled(loops())))
    for name, part in parts.items():
        for size in range(len(part)):
            with pytest.raises(ArtifactError):
                decode({**parts, name: part[:size]})


def test_every_flipped_bit_is_refused_or_another_program() -> None:
    """Nothing but our own errors comes out, and what is accepted is not what was written."""
    parts = encode(lower(compiled(loops())))
    original, random = decode(parts), Random(1)
    for _ in range(400):
        name = random.choice(list(parts))
        part = bytearray(parts[name])
        part[random.randrange(len(part))] ^= 1 << random.randrange(8)
        try:
            assert decode({**parts, name: bytes(part)}) != original
        except ArtifactError:
            continue


def test_another_version_is_refused() -> None:
    parts = encode(lower(compiled(summed())))
    part = bytearray(parts["vector"])
    part[4] = 2
    with pytest.raises(ArtifactError) as caught:
        decode({**parts, "vector": bytes(part)})
    assert caught.value.code == "asm.version"


def test_parts_are_those_that_the_tables_announce() -> None:
    parts = encode(lower(compiled(summed())))
    for wrong in (
        {**parts, "gpsimd": parts["vector"]},
        {name: part for name, part in parts.items() if name != "vector"},
        {name: part for name, part in parts.items() if name != "tables"},
        {**parts, "vector": parts["dma0"]},
    ):
        with pytest.raises(NkiError):
            raise_(decode(wrong))


def test_nesting_has_a_limit() -> None:
    """Groups in groups, deeper than any operand: refused before Python's own limit."""
    streams = lower(compiled(summed()))
    parts = encode(streams)
    data = parts["vector"]
    at = data.index(bytes([8])) if bytes([8]) in data else 44
    deep = data[:at] + b"\x0d\x01\x00" * 5000 + data[at:]
    deep = deep[:8] + len(deep).to_bytes(8, "little") + deep[16:]
    with pytest.raises(ArtifactError) as caught:
        decode({**parts, "vector": deep})
    assert caught.value.code == "asm.encoding"


def test_queues_are_separate() -> None:
    """A change of one instruction changes the part of its queue only, if the tables stay as they are."""
    one, other = (encode(lower(replaced(compiled(summed()), 2, operand0=value))) for value in (0.5, 0.25))
    assert [name for name in one if one[name] != other[name]] == ["vector"]


def test_commands_are_counted() -> None:
    streams: Streams = lower(compiled(summed()))
    assert sum(isinstance(e, Command) for s in streams.streams for e in s.entries) == 5
