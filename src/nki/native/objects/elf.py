"""Reads relocatable ELF objects for x86-64 and lays them out for memory, checking every number before it is used."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

EXTERNAL = ("memcpy", "memmove", "memset")
"""Functions of the C library that compilers call on their own account; an object may ask for no others."""

LARGEST = 64 << 20
"""Bytes that one object may take, in the file and in memory."""

PAGE = 4096
"""What the parts of an image are multiples of: the page size of x86-64."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<4xIQ8xQQIIQQ")
_SYMBOL = struct.Struct("<IBxHQ8x")
_RELOCATION = struct.Struct("<QIIq")
_ADDRESS = struct.Struct("<Q")
_DISTANCE = struct.Struct("<i")
_FAR_DISTANCE = struct.Struct("<q")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bit, least significant byte first, version 1
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _RELA, _NOTE, _NOBITS, _REL, _UNWIND = 1, 2, 4, 7, 8, 9, 0x70000001
_CONTENTS = frozenset((_PROGBITS, _NOTE, _NOBITS, _UNWIND))
_WRITE, _ALLOC, _EXECUTE, _TLS, _COMPRESSED = 1, 2, 4, 0x400, 0x800
_EXTERNAL, _RESERVED, _FUNCTION, _COMMON, _THREAD = 0, 0xFF00, 2, 5, 6
_WIDTH = {1: 8, 2: 4, 4: 4, 24: 8}
"""Bytes that a relocation changes: R_X86_64_64, PC32, PLT32, PC64; all but the first hold distances."""


class ElfError(Exception):
    """The object is damaged, or asks for something that this loader does not do."""


@dataclass(frozen=True, slots=True)
class Section:
    """One entry of the section table.

    Attributes:
        kind: SHT_ number.
        flags: SHF_ bits.
        offset: where its bytes start in the file.
        size: how many, in the file or, for SHT_NOBITS, in memory.
        link, info: numbers of other sections, by kind.
        align: bytes, a power of two, at most a page.
    """

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name, and where it points.

    Attributes:
        name: "" for sections.
        function: whether it is a function of this object.
        section: number of the section; 0 if it is external, -1 if it is no address.
        offset: bytes into the image; 0 for external ones.
    """

    name: str
    function: bool
    section: int
    offset: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A number in the image that depends on where things are loaded.

    Attributes:
        kind: R_X86_64_ number.
        place: bytes from the start of the image.
        symbol: what it points to.
        addend: bytes added.
    """

    kind: int
    place: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True, slots=True)
class Image:
    """An object as it will lie in memory, apart from the relocations: code, then constants, then variables.

    Attributes:
        data: all bytes, in whole pages.
        code, constants, variables: bytes that each part takes, in whole pages.
        functions: bytes from the start of the image to each function.
        relocations: all.
    """

    data: bytes = field(repr=False)
    code: int
    constants: int
    variables: int
    functions: Mapping[str, int]
    relocations: tuple[Relocation, ...]


def read(data: bytes) -> Image:
    """Check an object and lay it out; nothing is mapped or executed.

    Raises:
        ElfError: the object is damaged or uses something that is not supported.
    """
    sections = _sections(data)
    code, constants, variables, places = _layout(sections)
    image = bytearray(code + constants + variables)
    for number, place in places.items():
        section = sections[number]
        if section.kind != _NOBITS:
            image[place : place + section.size] = data[section.offset : section.offset + section.size]
    symbols = _symbols(data, sections, places)
    functions = {symbol.name: symbol.offset for symbol in symbols if symbol.function}
    if any(offset >= code for offset in functions.values()):
        raise ElfError("a function lies outside the code")
    relocations = _relocations(data, sections, places, symbols)
    return Image(bytes(image), code, constants, variables, functions, relocations)


def relocate(image: Image, address: int, addresses: Mapping[str, int]) -> bytes:
    """The image's bytes for a place in memory.

    Args:
        image: from `read`.
        address: where its first byte will be.
        addresses: of external functions, by name.

    Raises:
        ElfError: an external function is not there, or something lies too far away.
    """
    out = bytearray(image.data)
    for relocation in image.relocations:
        symbol = relocation.symbol
        if symbol.section:
            value = address + symbol.offset
        elif symbol.name in addresses:
            value = addresses[symbol.name]
        else:
            raise ElfError(f"{symbol.name!r} is not among the external functions {', '.join(addresses)}")
        value += relocation.addend
        if relocation.kind == 1:
            _ADDRESS.pack_into(out, relocation.place, value & 0xFFFF_FFFF_FFFF_FFFF)
            continue
        distance = value - (address + relocation.place)
        form = _FAR_DISTANCE if _WIDTH[relocation.kind] == 8 else _DISTANCE
        try:
            form.pack_into(out, relocation.place, distance)
        except struct.error:
            raise ElfError(f"{symbol.name!r} lies {distance} bytes away, too far for its relocation") from None
    return bytes(out)


def _sections(data: bytes) -> list[Section]:
    """The section table, whose contents all lie within the file."""
    if not _HEADER.size <= len(data) <= LARGEST:
        raise ElfError(f"{len(data)} bytes are no object")
    ident, kind, machine, _, _, _, start, _, _, _, _, entry, count, _ = _HEADER.unpack_from(data)
    if not ident.startswith(_IDENT) or kind != _RELOCATABLE or machine != _X86_64 or entry != _SECTION.size:
        raise ElfError("this is no relocatable ELF object for x86-64")
    table = _bytes(data, start, count * _SECTION.size)
    sections = []
    for kind, flags, offset, size, link, info, align, _ in _SECTION.iter_unpack(table):
        section = Section(kind, flags, offset, size, link, info, max(align, 1))
        if kind != _NOBITS:
            _bytes(data, offset, size)
        if flags & _ALLOC and (kind not in _CONTENTS or flags & (_TLS | _COMPRESSED) or size > LARGEST):
            raise ElfError(f"a section of kind {kind:#x} with flags {flags:#x} and {size} bytes cannot be loaded")
        if flags & _ALLOC and (section.align & (section.align - 1) or section.align > PAGE):
            raise ElfError(f"an alignment of {section.align} bytes is not possible")
        if flags & _WRITE and flags & _EXECUTE:
            raise ElfError("a section is code and can be written")
        sections.append(section)
    return sections


def _layout(sections: list[Section]) -> tuple[int, int, int, dict[int, int]]:
    """Bytes of code, constants and variables, and where each loaded section starts, by number."""
    places: dict[int, int] = {}
    # Each part has pages of its own, because the system gives rights by page: code must not be writable.
    ends = [0]
    for flags in (_EXECUTE, 0, _WRITE):
        end = ends[-1]
        for number, section in enumerate(sections):
            if section.flags & _ALLOC and section.size and section.flags & (_WRITE | _EXECUTE) == flags:
                end += -end % section.align
                places[number] = end
                end += section.size
        ends.append(end + -end % PAGE)
    if not 0 < ends[1] <= ends[3] <= LARGEST:
        raise ElfError(f"the object has {ends[1]} bytes of code and {ends[3]} in all")
    return ends[1], ends[2] - ends[1], ends[3] - ends[2], places


def _symbols(data: bytes, sections: list[Section], places: Mapping[int, int]) -> list[Symbol]:
    """The symbol table; an object has one."""
    tables = [section for section in sections if section.kind == _SYMTAB]
    if len(tables) != 1 or tables[0].size % _SYMBOL.size or tables[0].link >= len(sections):
        raise ElfError("the object has no symbol table, or not just one")
    table, strings = tables[0], sections[tables[0].link]
    if strings.kind == _NOBITS:
        raise ElfError("the names of the symbols are not in the file")
    names = _bytes(data, strings.offset, strings.size)
    symbols = []
    for name, info, section, value in _SYMBOL.iter_unpack(_bytes(data, table.offset, table.size)):
        text = _name(names, name)
        if section == _EXTERNAL or section >= _RESERVED:
            symbols.append(Symbol(text, False, 0 if section == _EXTERNAL and text else -1, 0))
            continue
        if section >= len(sections):
            raise ElfError(f"{text!r} is in section {section} of {len(sections)}")
        if section not in places:  # an empty one, or one that is not loaded
            symbols.append(Symbol(text, False, -1, 0))
            continue
        function = info & 15 == _FUNCTION
        # `function` counts as a byte: a function has at least one, while other symbols may point behind the last.
        if value + function > sections[section].size or info & 15 in (_COMMON, _THREAD):
            raise ElfError(f"{text!r} is {value} bytes into {sections[section].size}, or of kind {info & 15}")
        symbols.append(Symbol(text, function, section, places[section] + value))
    return symbols


def _relocations(
    data: bytes, sections: list[Section], places: Mapping[int, int], symbols: list[Symbol]
) -> tuple[Relocation, ...]:
    """Relocations that change loaded sections, with their symbols."""
    found = []
    for table in sections:
        if table.kind not in (_RELA, _REL) or table.info not in places:
            continue
        linked = sections[table.link].kind if table.link < len(sections) else None
        if table.kind == _REL or table.size % _RELOCATION.size or linked != _SYMTAB:
            raise ElfError("a table of relocations is not of kind SHT_RELA, or has no symbols")
        section, start = sections[table.info], places[table.info]
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(_bytes(data, table.offset, table.size)):
            width = _WIDTH.get(kind)
            if width is None:
                raise ElfError(f"relocations of kind {kind} are not supported")
            if offset + width > section.size or section.kind == _NOBITS:
                raise ElfError(f"a relocation changes byte {offset} of {section.size}")
            if symbol >= len(symbols) or symbols[symbol].section < 0:
                raise ElfError(f"a relocation points to symbol {symbol}, which has no address")
            found.append(Relocation(kind, start + offset, symbols[symbol], addend))
    return tuple(found)


def _bytes(data: bytes, start: int, size: int) -> bytes:
    if start + size > len(data):
        raise ElfError(f"{size} bytes from byte {start} are not all in a file of {len(data)}")
    return data[start : start + size]


def _name(names: bytes, start: int) -> str:
    end = names.find(b"\0", start)
    if start and not start <= end:
        raise ElfError(f"no name ends after byte {start}")
    try:
        return names[start:end].decode() if start else ""
    except UnicodeDecodeError:
        raise ElfError(f"the name at byte {start} is no text") from None
