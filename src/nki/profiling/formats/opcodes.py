"""How profiles of devices spell the instructions of kernels."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Opcodes(NamedTuple):
    """Spellings.

    Attributes:
        spellings: of each instruction that has others than its name in capitals; the first one is written.
        loads: the instruction that loads the weights of a matmul.
        triggers: those that start a collective; the first one is written.
        own: opcodes of the device that no kernel writes.
        canonical: the spelling that counts for each other one.
    """

    spellings: Mapping[str, tuple[str, ...]]
    loads: Mapping[str, str]
    triggers: tuple[str, ...]
    own: frozenset[str]
    canonical: Mapping[str, str]


@cache  # a file of the package, which does not change
def opcodes() -> Opcodes:
    """All of them."""
    data = tomllib.loads((Path(__file__).parent / "opcodes.toml").read_text(encoding="utf-8"))
    spellings = {name: tuple(found) for name, found in data["spellings"].items()}
    triggers = tuple(data["collectives"]["trigger"])
    canonical = {other: found[0] for found in (*spellings.values(), triggers) for other in found}
    canonical |= {found[0]: found[0] for found in spellings.values()}
    return Opcodes(spellings, data["loads"], triggers, frozenset(data["own"]["opcodes"]), canonical)


def spelled(row: Mapping[str, Any]) -> str:
    """The opcode of a row of `instructions`, as a profile of a device would spell it."""
    package, _, name = row["opcode"].rpartition(".")
    known = opcodes()
    if package.endswith("collectives"):
        return known.triggers[0]
    if name == "nc_transpose" and row["engine"] == "tensor":
        return known.spellings["nc_matmul"][0]
    found = known.spellings.get(name, (name.upper(),))
    if found[0] == "COPY" and len(set(_DTYPES.findall(row["operands"]))) > 1:
        return "CAST"
    return found[0]


def kind_of(opcode: str) -> str:
    """One name for all spellings of an opcode."""
    plain = opcode.strip().upper()
    return opcodes().canonical.get(plain, plain)


_DTYPES = re.compile(r"\S+?:(\w+)\[[0-9, ]*\]@")


class Operand(NamedTuple):
    """A tensor operand in the words of a profile."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    region: str


_OPERAND = re.compile(r"([a-z_0-9]+)=\(?[^=]*?:(\w+)\[([0-9, ]*)\]@(\w+)")


def operands_of(text: str) -> list[Operand]:
    """The tensor operands of a row of `instructions`."""
    return [
        Operand(name, dtype, tuple(int(size) for size in shape.split(",") if size.strip()), region)
        for name, dtype, shape, region in _OPERAND.findall(text)
    ]
