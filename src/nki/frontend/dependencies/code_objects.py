"""What a code object is and which names it can read, found without running it."""

from __future__ import annotations

import dis
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

_STARTS = {
    "LOAD_GLOBAL": "global",
    "LOAD_NAME": "global",
    "LOAD_FROM_DICT_OR_GLOBALS": "global",
    "LOAD_DEREF": "free",
    "LOAD_CLASSDEREF": "free",
    "LOAD_FROM_DICT_OR_DEREF": "free",
}
_CONTINUES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_BETWEEN = frozenset({"EXTENDED_ARG", "CACHE", "PUSH_NULL", "NOT_TAKEN"})
_COMPUTED = frozenset(
    {"getattr", "hasattr", "setattr", "vars", "dir", "attrgetter", "methodcaller", "__dict__", "__getattribute__"}
)


@dataclass(frozen=True, slots=True)
class Read:
    """A name and the attributes that are taken from it at once: ``config.tile.rows``.

    Attributes:
        kind: "global", also of builtins; "free", a variable of a function around; "import", a module.
        name: the name; that of the module for an import.
        attributes: in order; may be empty.
        level: how many packages up a relative import starts.
    """

    kind: str
    name: str
    attributes: tuple[str, ...] = ()
    level: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to know about a code object, with the code objects nested in it.

    Attributes:
        digest: SHA-256 of everything but the identity: instructions, constants, names, lines and file.
        reads: every name that it can read from outside, without repetitions, in order of appearance.
        names: all names in it, those of attributes as well.
        texts: its text constants, which `getattr` may turn into names.
        computed: whether it can read attributes whose names it computes.
        codes: the code object and the nested ones.
    """

    digest: bytes
    reads: tuple[Read, ...]
    names: frozenset[str]
    texts: frozenset[str]
    computed: bool
    codes: tuple[CodeType, ...]


class _ByIdentity:
    """A code object as a key: comparing code objects by value would take longer than looking at them again."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.code is self.code


def facts_of(code: CodeType) -> Facts:
    """The facts, remembered: code objects do not change."""
    return _facts(_ByIdentity(code))


@lru_cache(maxsize=4096)  # code objects are read again in every call, and do not change
def _facts(key: _ByIdentity) -> Facts:
    codes = tuple(_nested(key.code))
    names = frozenset(name for code in codes for name in code.co_names)
    texts = frozenset(text for code in codes for text in _texts(code.co_consts) if text.isidentifier())
    reads = dict.fromkeys(read for code in codes for read in _reads(code))
    written = hashlib.sha256(encoded(key.code))
    return Facts(written.digest(), tuple(reads), names, texts, not names.isdisjoint(_COMPUTED), codes)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _texts(constants: tuple[Any, ...]) -> Iterator[str]:
    for constant in constants:
        match constant:
            case str():
                yield constant
            case tuple() | frozenset():
                yield from _texts(tuple(constant))


def _reads(code: CodeType) -> Iterator[Read]:
    """Loads of names, each with the attribute loads that follow it directly."""
    started: Read | None = None
    imported: Read | None = None
    level = 0
    for instruction in dis.get_instructions(code):
        operation, argument = instruction.opname, instruction.argval
        if operation in _CONTINUES and started is not None:
            started = Read(started.kind, started.name, (*started.attributes, argument), started.level)
            continue
        if operation in _BETWEEN:
            continue
        if started is not None:
            yield started
            started = None
        if operation in _STARTS:
            started = Read(_STARTS[operation], argument)
        elif operation == "LOAD_CONST" or operation == "LOAD_SMALL_INT":
            # The constants in front of an import are its level and the list of names.
            level = argument if type(argument) is int else level
        elif operation == "IMPORT_NAME":
            imported = Read("import", argument, level=level)
            yield imported
        elif operation == "IMPORT_FROM" and imported is not None:
            yield Read("import", imported.name, (argument,), imported.level)
    if started is not None:
        yield started


def encoded(value: Any) -> bytes:
    """A constant as bytes: equal bytes mean equal type and value, in every process.

    Raises:
        TypeError: for a value that is no constant.
    """
    match value:
        case None | bool() | int():
            return _framed(type(value).__name__, repr(value).encode())
        case float():
            return _framed("float", struct.pack("<d", value))
        case complex():
            return _framed("complex", struct.pack("<dd", value.real, value.imag))
        case str():
            return _framed("str", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return _framed("bytes", value)
        case tuple():
            return _framed("tuple", b"".join(encoded(item) for item in value))
        case frozenset():
            return _framed("frozenset", b"".join(sorted(encoded(item) for item in value)))
        case slice():
            return _framed("slice", encoded((value.start, value.stop, value.step)))
        case CodeType():
            return _framed("code", _encoded_code(value))
    if value is Ellipsis:
        return _framed("ellipsis", b"")
    raise TypeError(f"{type(value).__name__} is no constant")


def _encoded_code(code: CodeType) -> bytes:
    """A code object as bytes, with file and lines, which the compiled kernel carries into errors and profiles."""
    parts: tuple[Any, ...] = (
        code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable,
        code.co_qualname, code.co_filename, code.co_firstlineno, code.co_linetable,
    )  # fmt: skip
    return encoded(parts)


def _framed(kind: str, content: bytes) -> bytes:
    return b"%s %d:%s" % (kind.encode(), len(content), content)
