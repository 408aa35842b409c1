"""Why one instruction has to follow another: every pair by itself, where `dependences` walks over the segment once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from nki.passes.analysis.dependences import Order
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses, Footprint
from nki.spec.program import Issued, Program
from nki.target.model import Target

Kind = Literal["raw", "war", "waw", "register", "effect", "edge"]


class Reason(NamedTuple):
    """Why one instruction follows another: the kind of dependence, and the bytes, register or state that they share."""

    kind: Kind
    what: str


def why(
    items: Sequence[Issued],
    producer: int,
    consumer: int,
    program: Program,
    target: Target,
    edges: Order = (),
    fences: Order = (),
) -> tuple[Reason, ...]:
    """All reasons why the later of two instructions has to follow the earlier one; empty if it need not by itself."""
    accesses = Accesses(program, target)
    a, b = accesses.of(items[producer]), accesses.of(items[consumer])
    reasons = [
        *_shared_bytes("raw", a.writes, b.reads),
        *_shared_bytes("war", a.reads, b.writes),
        *_shared_bytes("waw", a.writes, b.writes),
    ]
    for name, number in {*a.sets} & {*b.uses, *b.sets} | {*a.uses} & {*b.sets}:
        kind: Kind = "register" if name == "register" else "effect"
        reasons.append(Reason(kind, f"{name} {number}".strip()))
    if (a.rendezvous and b.hbm) or (b.rendezvous and a.hbm):
        reasons.append(Reason("effect", "rendezvous"))
    if a.fence or b.fence:
        reasons.append(Reason("effect", "fence"))
    if (producer, consumer) in edges or any(first <= producer < consumer < after for first, after in fences):
        reasons.append(Reason("edge", "schedule"))
    return tuple(sorted(set(reasons)))


def _shared_bytes(kind: Kind, earlier: Sequence[Footprint], later: Sequence[Footprint]) -> Iterator[Reason]:
    for a in earlier:
        for b in later:
            if a.space == b.space and not disjoint(a, b):
                yield Reason(kind, _shared(a, b))


def _shared(a: Footprint, b: Footprint) -> str:
    rows = "" if a.hbm else f" partitions {max(a.first, b.first)}:{min(a.after, b.after)}"
    return f"{a.label}{rows} bytes {max(a.low, b.low)}:{min(a.high, b.high)}"
