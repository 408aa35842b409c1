"""What the engines of a device would record of a profile: its instructions in the parts in which they are executed.

A matmul is the loading of its weights and the multiplication, of float32 twice (the schema's raw_flops); a transfer is
an instruction of the unit that starts it. The end of a part is when its result is visible, as the durations of
published profiles have it, so that the parts of an engine overlap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from nki.profiling.formats.opcodes import opcodes, operands_of, spelled

if TYPE_CHECKING:
    from nki.profiling.record import Profile

RUN, LOAD, START = "run", "load", "start"
"""Kinds of parts: the work itself, the loading of weights, the start of a transfer."""


class Part(NamedTuple):
    """A part of an instruction on an engine.

    Attributes:
        id: row of `instructions`.
        what: `RUN`, `LOAD` or `START`.
        number: 1 for the second pass of a float32 product, else 0.
        core: of the launch.
        engine: that executes it.
        opcode: as profiles of devices spell it.
        start, end: in ns.
        share: part of the operations of the instruction.
    """

    id: int
    what: str
    number: int
    core: int
    engine: str
    opcode: str
    start: float
    end: float
    share: float


def executed(profile: Profile) -> list[Part]:
    """All parts by instruction, in the order in which the engine executes them; device loops once."""
    triggers = {row["instruction"]: row for row in profile["dma"].rows()}
    loading = _loading(profile)
    found: list[Part] = []
    for row in profile["instructions"].rows():
        if not row["runs"]:
            continue
        transfer = triggers.get(row["id"])
        if transfer is not None:
            if transfer["trigger"]:
                found.append(_part(row, START, transfer["trigger"], row["start_ns"], transfer["issued_ns"]))
        elif is_matmul(row):
            found += _passes(row, loading[_shapes(row)])
        else:
            found.append(_part(row, RUN, row["engine"], row["start_ns"], row["visible_ns"]))
    return found


def is_matmul(row: Mapping[str, Any]) -> bool:
    """Whether a row of `instructions` loads weights before it multiplies."""
    return row["engine"] == "tensor" and row["move_ns"] > row["start_ns"]


def passes_of(row: Mapping[str, Any]) -> int:
    """How often a matmul goes over its operands: twice for float32."""
    wide = any(each.name == "stationary" and each.dtype == "float32" for each in operands_of(row["operands"]))
    return 2 if wide and not row["transpose_flops"] else 1


def _part(row: Mapping[str, Any], what: str, engine: str, start: float, end: float) -> Part:
    return Part(row["id"], what, 0, row["core"], engine, spelled(row), start, end, 1.0)


def _passes(row: Mapping[str, Any], load: float) -> list[Part]:
    """Loads and multiplications; the second weights are loaded behind the first multiplication."""
    found, count, opcode = [], passes_of(row), spelled(row)
    latency, move = row["visible_ns"] - row["end_ns"], row["move_ns"]
    loads = opcodes().loads.get(opcode, f"LOAD_{opcode}")  # of a profile that others made
    each = (row["end_ns"] - move) / count
    for number in range(count):
        starts = row["start_ns"] if number == 0 else move + (number - 1) * each
        begins = move + number * each
        one = Part(row["id"], RUN, number, row["core"], "tensor", opcode, begins, begins + each + latency, 1.0 / count)
        weights = one._replace(what=LOAD, opcode=loads, start=starts, end=starts + load, share=0.0)
        found += [weights, one]
    return found


def _loading(profile: Profile) -> dict[str, float]:
    """The least time from the start to the multiplication, by the shapes of a matmul: others wait for the engine."""
    found: dict[str, float] = {}
    for row in profile["instructions"].rows():
        if is_matmul(row):
            shapes, ns = _shapes(row), row["move_ns"] - row["start_ns"]
            found[shapes] = min(ns, found.get(shapes, ns))
    return found


_NAMES = re.compile(r"=\(?[^=]*?:(?=\w+\[)")


def _shapes(row: Mapping[str, Any]) -> str:
    """What a matmul is like, without the names of its tensors."""
    return f"{row['opcode']} {_NAMES.sub('=', row['operands'])} {row['flops']} {row['cost_ns']}"
