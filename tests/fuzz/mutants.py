"""Small faults in scheduled programs, as a wrong pass would make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from nki.spec.program import Block, Issued, Program, Sync, Wait
from nki.spec.queue import by_dma, dma_queues
from nki.target.load import load_target


@dataclass(frozen=True)
class Mutant:
    """A program with one fault.

    Attributes:
        kind: of the fault, the name of its function.
        what: it changed, for people.
        queues: that it concerns.
    """

    kind: str
    what: str
    program: Program
    queues: tuple[str, ...] = ()


def mutant(program: Program, random: Random) -> Mutant:
    """A program with a random fault of a kind that can be made in it."""
    kinds = list(KINDS)
    random.shuffle(kinds)
    return next(made for kind in kinds if (made := kind(program, random)) is not None)


def deleted_wait(program: Program, random: Random) -> Mutant | None:
    """An instruction no longer waits for one queue."""
    return _with_wait(program, random, "deleted_wait", lambda wait: None)


def wrong_count(program: Program, random: Random) -> Mutant | None:
    """An instruction waits for one signal less or more."""
    step = random.choice([-1, -1, 1])
    return _with_wait(program, random, "wrong_count", lambda wait: Wait(wait.queue, wait.signals + step))


def lost_signal(program: Program, random: Random) -> Mutant | None:
    """The completion of an instruction is no signal any more."""
    places = [(b, p) for b, block in enumerate(_blocks(program.body)) for p, s in _scheduled(block) if s.signals]
    if not places:
        return None
    number, position = random.choice(places)
    old = _sync(program, number, position)
    return _changed(program, number, {position: replace_sync(old, signals=False)}, "lost_signal", (old.queue,))


def other_queue(program: Program, random: Random) -> Mutant | None:
    """An instruction stands in the queue of another engine, or a transfer in another DMA queue."""
    places = [(b, p) for b, block in enumerate(_blocks(program.body)) for p, _ in _scheduled(block)]
    number, position = random.choice(places)
    old, issued = _sync(program, number, position), list(_blocks(program.body))[number].items[position]
    assert isinstance(issued, Issued)
    engines = ("tensor", "vector", "scalar", "gpsimd", "sync")
    names = dma_queues(load_target(program.target)) if by_dma(issued) and random.random() < 0.9 else engines
    name = random.choice([name for name in names if name != old.queue])
    return _changed(program, number, {position: replace_sync(old, queue=name)}, "other_queue", (old.queue, name))


def swapped(program: Program, random: Random) -> Mutant | None:
    """Two neighbours in a queue change places; each place keeps its waits."""
    places = []
    for number, block in enumerate(_blocks(program.body)):
        last: dict[str, int] = {}
        for position, item in enumerate(block.items):
            sync = block.sync[position] if block.sync else None
            if not isinstance(item, Issued):
                last = {}
            elif sync is not None:
                if sync.queue in last:
                    places.append((number, last[sync.queue], position))
                last[sync.queue] = position
    if not places:
        return None
    number, first, second = random.choice(places)
    block = list(_blocks(program.body))[number]
    items = list(block.items)
    items[first], items[second] = items[second], items[first]
    body = _replaced(program.body, number, Block(block.buffers, items, block.sync))
    walk = {id(issued): position for position, issued in enumerate(body.walk())}
    old = list(program.body.walk())
    edges = [(walk[id(old[p])], walk[id(old[c])]) for p, c in program.edges]
    queue = _sync(program, number, first).queue
    return Mutant("swapped", f"{first} and {second}", replace(program, body=body, edges=edges), (queue,))


def moved(program: Program, random: Random) -> Mutant | None:
    """A tensor lies on top of another one, at least partly."""
    places = program.placement or {}
    buffers = {b.id: b for b in program.body.all_buffers() if b.id in places}
    pairs = [(a, b) for a in buffers.values() for b in buffers.values() if a is not b and a.region is b.region]
    if not pairs:
        return None
    one, other = random.choice(pairs)
    step = max(one.dtype.itemsize, other.dtype.itemsize, 4)
    shift = random.choice([0, 0, other.row_bytes // 2 // step * step, -(one.row_bytes // 2 // step * step)])
    byte = max(0, places[other.id][1] + shift)
    if byte == places[one.id][1]:
        return None
    what = f"{one.name} from {places[one.id]} to byte {byte}, onto {other.name}"
    return Mutant("moved", what, replace(program, placement={**places, one.id: (0, byte)}))


KINDS: tuple[Callable[[Program, Random], Mutant | None], ...] = (
    deleted_wait,
    deleted_wait,
    wrong_count,
    lost_signal,
    other_queue,
    swapped,
    moved,
)


def replace_sync(sync: Sync, **fields: Any) -> Sync:
    return sync._replace(**fields)


def _with_wait(program: Program, random: Random, kind: str, change: Callable[[Wait], Wait | None]) -> Mutant | None:
    places = [
        (b, p, wait)
        for b, block in enumerate(_blocks(program.body))
        for p, sync in _scheduled(block)
        for wait in sync.waits
    ]
    if not places:
        return None
    number, position, wait = random.choice(places)
    old, new = _sync(program, number, position), change(wait)
    waits = tuple(w for w in old.waits if w is not wait) + (() if new is None else (new,))
    return _changed(program, number, {position: replace_sync(old, waits=waits)}, kind, (old.queue, wait.queue))


def _changed(program: Program, number: int, syncs: dict[int, Sync], kind: str, queues: tuple[str, ...]) -> Mutant:
    block = list(_blocks(program.body))[number]
    assert block.sync is not None
    changed = Block(block.buffers, block.items, [syncs.get(p, sync) for p, sync in enumerate(block.sync)])
    what = "; ".join(f"{p} of block {number}: {block.sync[p]} to {sync}" for p, sync in syncs.items())
    return Mutant(kind, what, replace(program, body=_replaced(program.body, number, changed)), queues)


def _blocks(block: Block) -> Iterator[Block]:
    """All blocks, outer ones first."""
    yield block
    for item in block.items:
        if not isinstance(item, Issued):
            yield from _blocks(item.body)


def _scheduled(block: Block) -> Iterator[tuple[int, Sync]]:
    for position, sync in enumerate(block.sync or ()):
        if sync is not None:
            yield position, sync


def _sync(program: Program, number: int, position: int) -> Sync:
    sync = (list(_blocks(program.body))[number].sync or ())[position]
    assert sync is not None
    return sync


def _replaced(block: Block, number: int, new: Block) -> Block:
    """A block with another one in place of the one with a number."""
    count = -1

    def of(old: Block) -> Block:
        nonlocal count
        count += 1
        used = new if count == number else old
        items = [item if isinstance(item, Issued) else replace(item, body=of(item.body)) for item in used.items]
        return Block(used.buffers, items, used.sync)

    return of(block)
