"""Programs for the tests of allocation: random ones, traced ones, and a machine that runs them at their addresses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from hypothesis import strategies as st

import nki.isa as nisa
from nki.compiler import AddressRotation, CompileConfig
from nki.core.dtypes import uint8
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes.context import Context
from nki.ranks.protocol import ALONE
from nki.sim.machine import Machine
from nki.sim.memory import Memory
from nki.sim.walk import run_program
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.target.load import load_target
from nki.target.model import Target

TRN2 = load_target("trn2")


# --- programs by hand


def buffer(
    key: int, size: int, region: str = "sbuf", address: tuple[int, int] | None = None, partitions: int = 128
) -> Buffer:
    """`size` bytes of each of its partitions."""
    return Buffer(key, f"b{key}", MemoryRegion[region], (partitions, size), uint8, address)


def use(dst: Buffer, src: Buffer | None = None) -> Issued:
    """An instruction that writes one buffer and reads another one, or only writes."""
    if src is None:
        arguments: Any = nisa.memset.arguments(dst=whole(dst), value=0, engine=engine.vector, name=None)
        return Issued(nisa.memset, arguments, UNKNOWN, engine.vector)
    arguments = nisa.tensor_copy.arguments(dst=whole(dst), src=whole(src), engine=engine.vector, name=None)
    return Issued(nisa.tensor_copy, arguments, UNKNOWN, engine.vector)


def program(block: Block, target: Target = TRN2) -> Program:
    return Program("k", target.name, 0, 1, body=block)


def loop(body: Block, trips: int = 4) -> ForLoop:
    return ForLoop(0, trips, 1, VirtualRegister(0), body, UNKNOWN)


def context(rotation: AddressRotation = AddressRotation.AUTO, target: Target = TRN2) -> Context:
    return Context(target, config=CompileConfig(address_rotation=rotation))


@st.composite
def blocks(
    draw: st.DrawFn,
    outer: tuple[Buffer, ...] = (),
    depth: int = 2,
    explicit: bool = True,
    most: int = 600,
    ids: Iterator[int] | None = None,
) -> Block:
    """Random blocks with loops in them; buffers of SBUF and PSUM, some with addresses. No two have one id."""
    ids = count() if ids is None else ids
    made = []
    for _ in range(draw(st.integers(0, 4))):
        region = draw(st.sampled_from(["sbuf", "sbuf", "psum"]))
        step = 2048 if region == "psum" else 1
        place = draw(st.none() | st.tuples(st.sampled_from([0, 64]), st.integers(0, 3))) if explicit else None
        address = None if place is None else (place[0], place[1] * max(step, 100))
        size = min(draw(st.integers(1, most)), 4096 if region == "psum" else most)
        made.append(buffer(next(ids), size, region, address, draw(st.sampled_from([32, 64]))))
    known = (*outer, *made)
    items: list[Any] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["use", "use", "use", "for", "while"]))
        if kind == "use" and known:
            items.append(use(draw(st.sampled_from(known)), draw(st.none() | st.sampled_from(known))))
        elif kind != "use" and depth:
            body = draw(blocks(known, depth - 1, explicit, most, ids))
            items.append(loop(body) if kind == "for" else WhileLoop(VirtualRegister(0), body, UNKNOWN))
    return Block(made, items)


# --- what lives where, found the slow way


Path = tuple[int, ...]


def leaves(block: Block, path: Path = ()) -> Iterator[tuple[Path, Issued]]:
    """Every instruction with the positions that lead to it."""
    for position, item in enumerate(block.items):
        if isinstance(item, Issued):
            yield (*path, position), item
        else:
            yield from leaves(item.body, (*path, position))


def homes(block: Block, path: Path = ()) -> Iterator[tuple[Path, Buffer]]:
    """Every buffer with the positions that lead to its block."""
    for made in block.buffers:
        yield path, made
    for position, item in enumerate(block.items):
        if not isinstance(item, Issued):
            yield from homes(item.body, (*path, position))


def lives(block: Block) -> dict[int, tuple[Buffer, set[int]]]:
    """The positions at which each on-chip buffer is live, by its id, asked position by position."""
    everything = list(leaves(block))
    found = {}
    for home, made in homes(block):
        if not made.on_chip:
            continue
        depth = len(home)
        uses = [path[depth] for path, issued in everything if any(view.buffer is made for _, view in issued.views())]
        if uses:
            inside = range(min(uses), max(uses) + 1)
            at = {n for n, (path, _) in enumerate(everything) if path[:depth] == home and path[depth] in inside}
            found[made.id] = (made, at)
    return found


def box(made: Buffer, placement: dict[int, tuple[int, int]]) -> tuple[int, int, int, int]:
    """Partitions and bytes that a buffer takes."""
    partition, byte = made.address or placement[made.id]
    return partition, partition + made.partitions, byte, byte + made.row_bytes


def meet(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


# --- running


def traced(kernel: Callable[..., Any], *arguments: Any, target: Target = TRN2) -> Program:
    """The program of a kernel on one core."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tracer,) = trace_only(Launch(kernel), arguments, {}, target, Options(), collect=False)
    return tracer.program


def results(traced_program: Program, *arrays: Any, target: Target = TRN2) -> tuple[list[bytes], list[str]]:
    """Bytes of the results, and the codes of what was reported; inputs are copied."""
    findings: list[Any] = []
    memory = Memory(target)
    machine = Machine(target, Options(), memory, findings.append, ALONE)
    given = [np.ascontiguousarray(array).copy() for array in arrays if isinstance(array, np.ndarray)]
    inputs = [memory.adopt(made, array) for made, array in zip(traced_program.inputs, given, strict=True)]
    with np.errstate(all="ignore"):
        storages = run_program(machine, traced_program, inputs, memory.allocate)
    return [storage.base.tobytes() for storage in storages], [finding.code for finding in findings]


def at_addresses(placed: Program) -> Program:
    """The same program with every allocated address written into its buffer, so that the machine uses real bytes."""
    assert placed.placement is not None
    moved = {
        made.id: replace(made, address=placed.placement[made.id])
        for made in placed.body.all_buffers()
        if made.id in placed.placement
    }
    return replace(placed, body=_moved(placed.body, moved), placement=None)


def _moved(block: Block, moved: dict[int, Buffer]) -> Block:
    def view(old: View) -> View:
        new = old._replace(buffer=moved.get(old.buffer.id, old.buffer))
        if new.dynamic is not None and isinstance(new.dynamic.indices, View):
            return new._replace(dynamic=new.dynamic._replace(indices=view(new.dynamic.indices)))
        return new

    def value(old: Any) -> Any:
        if isinstance(old, View):
            return view(old)
        return tuple(value(item) for item in old) if type(old) is tuple else old

    def item(old: Any) -> Any:
        if isinstance(old, Issued):
            return old._replace(arguments=old.instruction.arguments._make([value(a) for a in old.arguments]))
        return replace(old, body=_moved(old.body, moved))

    return Block([moved.get(made.id, made) for made in block.buffers], [item(old) for old in block.items])
