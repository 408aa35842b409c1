"""Dependency edges that a kernel adds to those of its data, and the check that a program's order satisfies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nki.core.errors import ExecutionError, FrontendError, LaunchError
from nki.spec.program import Block, Issued, Program

NamedEdge = tuple[str, str]
"""Names of a producer and of its consumer."""

_GUIDE = "nki/guides/how-to-scheduling-apis.rst"
_DEPENDS_ON = "nki/api/nki/isa NkiInstruction.depends_on"


class Edge(NamedTuple):
    """`consumer` runs after `producer` has completed."""

    producer: Issued
    consumer: Issued


def dependencies(block: Block, consumer: Issued, producers: Sequence[Issued]) -> list[Edge]:
    """The edges of ``consumer.depends_on(*producers)``, called while `block` is traced.

    Raises:
        FrontendError: "schedule.loop" if one of them is not directly in `block`, "schedule.self" for an edge to itself.
    """
    for issued in (consumer, *producers):
        if not any(item is issued for item in reversed(block.items)):
            raise FrontendError(
                "schedule.loop",
                f"{issued.instruction.label} at {issued.location} is not at the level of the running code",
                rule="both ends of a dependency are in the same device loop, or both outside of every one",
                source=_DEPENDS_ON,
                fix="add the dependency in the body that issues both instructions",
            )
    if any(producer is consumer for producer in producers):
        raise FrontendError(
            "schedule.self",
            f"{consumer.instruction.label} depends on itself",
            rule="an instruction runs after other instructions",
            source=_DEPENDS_ON,
            fix="pass the handle of another instruction",
        )
    return [Edge(producer, consumer) for producer in producers]


def positions(program: Program, edges: Sequence[Edge]) -> list[tuple[int, int]]:
    """``(producer, consumer)`` positions in ``program.body.walk()``, each once, sorted."""
    if not edges:
        return []
    position = {id(issued): i for i, issued in enumerate(program.body.walk())}
    return sorted({(position[id(edge.producer)], position[id(edge.consumer)]) for edge in edges})


def fences(program: Program, groups: Sequence[Sequence[Issued]]) -> list[tuple[int, int]]:
    """``(first, after)`` positions in ``program.body.walk()`` of groups that were issued one after the other."""
    groups = [group for group in groups if len(group) > 1]
    if not groups:
        return []
    position = {id(issued): i for i, issued in enumerate(program.body.walk())}
    found = [[position[id(issued)] for issued in group if id(issued) in position] for group in groups]
    return sorted((min(group), max(group) + 1) for group in found if len(group) > 1)


def named_edges(edges: object) -> tuple[NamedEdge, ...]:
    """What ``kernel.with_schedule(edges)`` means: ``[(consumer, producer or producers)]`` by name.

    Raises:
        LaunchError: "schedule.form" for anything else.
    """
    if not isinstance(edges, list | tuple):
        raise _form(edges)
    found: list[NamedEdge] = []
    for edge in edges:
        if not isinstance(edge, list | tuple) or len(edge) != 2 or not isinstance(edge[0], str):
            raise _form(edge)
        producers = edge[1] if isinstance(edge[1], list | tuple) else (edge[1],)
        if not producers or not all(isinstance(producer, str) for producer in producers):
            raise _form(edge)
        found += [(producer, edge[0]) for producer in producers]
    return tuple(found)


def add_named_edges(programs: Sequence[Program], edges: Sequence[NamedEdge]) -> None:
    """Find the instructions of a schedule by name, and note the edges in every core's program.

    An edge counts on the cores that have both of its instructions.

    Raises:
        LaunchError: "schedule.unknown-name" for a name that no core has, "schedule.ambiguous-name" for one that a core
            has twice, "schedule.loop" for an edge into or out of a device loop.
        ExecutionError: "schedule.order", see `check_order`.
    """
    if edges:
        tables = [_names(program) for program in programs]
        for name in {name for edge in edges for name in edge}:
            if not any(name in table for table in tables):
                raise _unknown(name, tables)
        for program, table in zip(programs, tables, strict=True):
            present = [(table[p], table[c]) for p, c in edges if p in table and c in table]
            program.edges = sorted({*program.edges, *(_positions(p, c) for p, c in present)})
    for program in programs:
        check_order(program)


def check_order(program: Program) -> None:
    """Raise ExecutionError "schedule.order" if the program's order breaks one of its edges."""
    wrong = next((edge for edge in program.edges if edge[0] >= edge[1]), None)
    if wrong is None:
        return
    order = list(program.body.walk())
    producer, consumer = (order[position] for position in wrong)
    raise ExecutionError(
        "schedule.order",
        f"{consumer.instruction.label} at {consumer.location} is to run after {producer.instruction.label} at "
        f"{producer.location}, which comes later in the program",
        rule="instructions are executed in program order, and that order must satisfy every edge of the schedule",
        source=_GUIDE,
        fix="issue the producer first",
        location=consumer.location,
    )


def check_complete(prepared: Issued | None) -> None:
    """Raise FrontendError "collective.unpaired" if the kernel ends between prepare and trigger."""
    if prepared is not None:
        raise FrontendError(
            "collective.unpaired",
            f"{prepared.instruction.label} is never triggered",
            rule="each prepare is followed by exactly one trigger",
            source="nki/api/generated/nki.collectives.all_to_all_v_prepare (NKI 0.7)",
            fix="call the trigger with the instruction that prepare returned",
            location=prepared.location,
        )


class _Place(NamedTuple):
    position: int
    block: int
    issued: Issued


def _names(program: Program) -> dict[str, _Place]:
    found: dict[str, _Place] = {}
    for position, (block, issued) in enumerate(_walk(program.body)):
        name = issued.arguments.name if "name" in issued.instruction.operands else None
        if not name:
            continue
        if name in found:
            raise LaunchError(
                "schedule.ambiguous-name",
                f"two instructions are called {name!r}: at {found[name].issued.location} and at {issued.location}",
                rule="the names of a kernel with a schedule are different",
                source=_GUIDE,
                fix="give them different names, for example with the loop index: name=f'load{i}'",
                location=issued.location,
            )
        found[name] = _Place(position, id(block), issued)
    return found


def _walk(block: Block) -> Iterator[tuple[Block, Issued]]:
    """All instructions in the order of `Block.walk`, each with the block that holds it."""
    for item in block.items:
        if isinstance(item, Issued):
            yield block, item
        else:
            yield from _walk(item.body)


def _positions(producer: _Place, consumer: _Place) -> tuple[int, int]:
    if producer.block != consumer.block:
        raise LaunchError(
            "schedule.loop",
            f"an edge from {producer.issued.arguments.name!r} at {producer.issued.location} to "
            f"{consumer.issued.arguments.name!r} crosses the border of a device loop",
            rule="both ends of a dependency are in the same device loop, or both outside of every one",
            source=_DEPENDS_ON,
            fix="order the loop as a whole by its data, or move one of the two instructions",
            location=consumer.issued.location,
        )
    return producer.position, consumer.position


def _unknown(name: str, tables: Sequence[dict[str, _Place]]) -> LaunchError:
    known = sorted({name for table in tables for name in table})
    return LaunchError(
        "schedule.unknown-name",
        f"no instruction of the kernel is called {name!r}",
        rule="a schedule names instructions by their argument name=",
        source=_GUIDE,
        fix=f"use one of {', '.join(known)}" if known else "pass name= to the instructions",
    )


def _form(edge: object) -> LaunchError:
    return LaunchError(
        "schedule.form",
        f"with_schedule got {edge!r}"[:160],
        rule="a schedule is a list of (consumer, producer) or (consumer, [producer, ...]), all by name",
        source=_GUIDE,
        fix='write kernel.with_schedule([("store", ["load0", "load1"])])',
    )
