"""Reading and relocating ELF objects, whole and damaged ones; nothing is executed here."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.native.objects import elf
from nki.native.objects.jit import compile_object
from tests.native.objects.jit_cases import COPY, COUNTER, Part, Writer, scale_add

EXTERNAL = {name: 0x7FFF_0000_1000 + 64 * i for i, name in enumerate(elf.EXTERNAL)}
FAR = 0x7F12_3456_7000
OBJECTS = tuple(compile_object(text) for text in (scale_add("f"), COUNTER, COPY))


def survive(data: bytes) -> bool:
    """Read and relocate; whether that was possible. What comes out must keep within itself."""
    try:
        image = elf.read(data)
        placed = elf.relocate(image, FAR, EXTERNAL)
    except elf.ElfError:
        return False
    assert len(placed) == len(image.data) == image.code + image.constants + image.variables <= elf.LARGEST
    assert all(0 <= offset < image.code for offset in image.functions.values())
    assert not (image.code | image.constants | image.variables) % elf.PAGE
    return True


def test_numbers_are_where_the_format_says() -> None:
    """Relocations of each kind, worked out by hand from the psABI: S + A, and S + A - P."""
    writer = Writer(bytes(64), [("f", 0x12, 1, 0), ("g", 0x12, 1, 32), ("memset", 0x10, 0, 0)])
    writer.relocations = [(8, 2, 1, 5), (16, 2, 2, -4), (20, 1, 4, -4), (24, 2, 24, 0), (40, 3, 1, 0)]
    image = elf.read(writer.bytes())
    assert image.functions == {"f": 0, "g": 32}
    assert (image.code, image.constants, image.variables) == (4096, 0, 0)
    placed = elf.relocate(image, FAR, EXTERNAL)
    assert struct.unpack_from("<Q", placed, 8) == (FAR + 32 + 5,)
    assert struct.unpack_from("<ii", placed, 16) == (32 - 4 - 16, 0 - 4 - 20)
    assert struct.unpack_from("<q", placed, 24) == (32 - 24,)
    assert struct.unpack_from("<Q", placed, 40) == (EXTERNAL["memset"],)
    assert image.data == bytes(4096), "relocating does not change the image"


def test_code_constants_and_variables_have_pages_of_their_own() -> None:
    writer = Writer(more=[Part(1, 2, b"constant", 64), Part(1, 3, b"variable", 8), Part(8, 3, bytes(5000), 16)])
    writer.symbols += [("c", 0x11, 5, 3), ("v", 0x11, 7, 8)]
    writer.relocations = [(0, 2, 1, 0), (8, 3, 1, 0)]
    image = elf.read(writer.bytes())
    assert (image.code, image.constants, image.variables) == (4096, 4096, 8192)
    assert image.data[4096:4104] == b"constant" and image.data[8192:8200] == b"variable"
    c, v = struct.unpack_from("<QQ", elf.relocate(image, FAR, {}))
    assert (c - FAR, v - FAR) == (4096 + 3, 8192 + 16 + 8)


def unfinished(name: str) -> Writer:
    return Writer(symbols=[("f", 0x12, 1, 0), (name, 0x10, 0, 0)], relocations=[(0, 2, 1, 0)])


@pytest.mark.parametrize(
    ("writer", "says"),
    [
        (Writer(machine=183), "no relocatable ELF object for x86-64"),
        (Writer(code=b""), "0 bytes of code"),
        (Writer(code_flags=7), "code and can be written"),
        (Writer(code_flags=2), "0 bytes of code"),
        (Writer(relocations=[(9, 1, 1, 0)]), "changes byte 9 of 16"),
        (Writer(relocations=[(13, 1, 2, 0)]), "changes byte 13 of 16"),
        (Writer(relocations=[(2**64 - 4, 1, 2, 0)]), "changes byte"),
        (Writer(relocations=[(0, 2, 1, 0)]), "symbol 2, which has no address"),
        (Writer(relocations=[(0, 0, 1, 0)]), "symbol 0, which has no address"),
        (Writer(relocations=[(0, 1, 42, 0)]), "kind 42 are not supported"),
        (Writer(relocations=[(0, 1, 1, 0)], relocation_kind=9), "not of kind SHT_RELA"),
        (Writer(symbols=[("f", 0x12, 1, 16)]), "16 bytes into 16"),
        (Writer(symbols=[("f", 0x12, 9, 0)]), "section 9 of 5"),
        (Writer(symbols=[("f", 0x16, 1, 0)]), "of kind 6"),
        (Writer(symbols=[("f", 0x12, 5, 0)], more=[Part(1, 2, b"data")]), "outside the code"),
        (Writer(more=[Part(1, 0x402, b"thread")]), "cannot be loaded"),
        (Writer(more=[Part(1, 0x802, b"packed")]), "cannot be loaded"),
        (Writer(more=[Part(14, 3, bytes(8))]), "kind 0xe"),
        (Writer(more=[Part(1, 2, b"data", 48)]), "alignment of 48"),
        (Writer(more=[Part(1, 2, b"data", 8192)]), "alignment of 8192"),
        (Writer(more=[Part(2, 0, bytes(24), link=3)]), "not just one"),
        (unfinished("system"), "'system' is not among the external functions memcpy, memmove, memset"),
        (unfinished("_GLOBAL_OFFSET_TABLE_"), "is not among the external functions"),
        (Writer(symbols=[("f", 0x12, 1, 0), ("memcpy", 0x10, 0, 0)], relocations=[(0, 2, 4, -4)]), "too far"),
    ],
)
def test_what_is_refused(writer: Writer, says: str) -> None:
    with pytest.raises(elf.ElfError, match=says):
        elf.relocate(elf.read(writer.bytes()), 0x1000, EXTERNAL)


def test_the_writer_of_these_tests_writes_objects() -> None:
    """So that what is refused above is refused for the one thing that is wrong."""
    assert survive(Writer().bytes())
    assert survive(Writer(relocations=[(0, 1, 1, 0)], more=[Part(1, 2, b"data", 64)]).bytes())
    assert survive(unfinished("memmove").bytes())


@pytest.mark.parametrize("data", OBJECTS)
def test_objects_of_the_compiler_are_read(data: bytes) -> None:
    assert survive(data)
    assert not survive(data[:-1])
    assert not survive(b"")


def big(size: int) -> bytes:
    """A section of zeros that are not in the file."""
    data = bytearray(Writer(more=[Part(8, 3, bytes(8))]).bytes())
    struct.pack_into("<Q", data, len(data) - 64 + 32, size)
    return bytes(data)


@pytest.mark.parametrize("size", [elf.LARGEST, elf.LARGEST + 1, 2**40, 2**64 - 1])
def test_memory_is_bounded(size: int) -> None:
    assert survive(big(1 << 20))
    with pytest.raises(elf.ElfError):
        elf.read(big(size))


@pytest.mark.parametrize("data", OBJECTS)
def test_every_truncation_and_some_flips_of_every_byte(data: bytes) -> None:
    assert not any(survive(data[:size]) for size in range(0, len(data), 3))
    draw = random.Random(5)
    read = 0
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << draw.randrange(8)
        read += survive(bytes(changed))
    assert 0 < read < len(data), "flips in the code are not noticed here, flips in tables are"


NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 63, 64, 255, 0x7FFF, 0xFFF1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]),
    st.integers(0, 5000),
)


@given(st.sampled_from(OBJECTS), st.lists(st.tuples(st.floats(0, 1), NUMBERS, st.sampled_from((2, 4, 8))), max_size=4))
def test_numbers_in_tables_may_be_anything(data: bytes, changes: list[tuple[float, int, int]]) -> None:
    """In the header, in the section table at the end, and anywhere, at their natural alignment."""
    (sections,) = struct.unpack_from("<Q", data, 40)
    changed = bytearray(data)
    for where, number, size in changes:
        for start, end in ((0, 64), (sections, len(data)), (0, len(data))):
            at = start + int(where * (end - start - size)) // size * size
            changed[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
            survive(bytes(changed))
