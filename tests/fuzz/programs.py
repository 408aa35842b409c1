"""Random legal kernels: a number makes the same kernel in every process, and the same choices in every mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.compiler import AddressRotation, CompileConfig
from tests.fuzz import elementwise, movement
from tests.fuzz.scope import TABLES, Scope
from tests.isa.registry import Legal
from tests.isa.test_registry import ALL

ANYWHERE: dict[Any, int] = {**elementwise.STEPS, **movement.STEPS}


@dataclass(frozen=True)
class Case:
    """A random kernel and how to launch it.

    Attributes:
        kernel: plain function of `arguments`.
        lnc: number of cores.
    """

    seed: int
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]
    lnc: int | None
    target: str
    config: CompileConfig


def case(seed: int) -> Case:
    """The kernel of a number."""
    random = Random(f"kernel {seed}")
    partitions, free = random.choice([(8, 32), (16, 32), (32, 32), (32, 64), (64, 64)])
    lnc = 2 if random.random() < 0.15 else None
    target = random.choice(["trn2", "trn2", "trn3"])
    steps = random.choice([5, 10, 10, 20, 40])
    config = _config(random, Random(f"places {seed}"))
    blocks = [] if lnc or random.random() < 0.5 else random.sample(building_blocks(target), random.randint(1, 2))
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((TABLES, partitions, free)).astype(np.float32)
    index = numbers.integers(0, TABLES, (1, 8)).astype(np.int32)

    def kernel(x: Any, index: Any, others: Any) -> Any:
        return _body(Random(seed), x, index, others, [b.kernel for b in blocks], steps, target)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        others = tuple(block.arguments() for block in blocks)
    return Case(seed, kernel, (x, index, others), lnc, target, config)


def _config(random: Random, places: Random) -> CompileConfig:
    return CompileConfig(
        prefetch_auto=random.random() < 0.3,
        dead_code_elim=random.random() < 0.2,
        address_rotation=AddressRotation.DISABLE if places.random() < 0.2 else AddressRotation.AUTO,
        spill=places.random() < 0.1,
    )


@cache
def building_blocks(target: str) -> list[Legal]:
    """Legal examples of instructions that can be part of another kernel."""
    return [
        example
        for example in ALL
        if isinstance(example, Legal)
        and target in example.targets
        and example.lnc is None
        and example.instruction not in ("device_print", "barrier", "core_barrier")
        and not example.instruction.startswith(("all_", "collective", "reduce_scatter"))
        and all(isinstance(a, np.ndarray) and a.size <= 1 << 14 for a in example.arguments())
    ]


def _body(random: Random, x: Any, index: Any, others: Any, blocks: list[Any], steps: int, target: str) -> Any:
    cores = max(1, nl.num_programs(0)) if nl.num_programs() else 1
    me = nl.program_id(0) if cores > 1 else 0
    _, partitions, free = x.shape
    out = nl.ndarray((cores, TABLES, partitions, free), nl.float32, buffer=nl.shared_hbm)
    numbers = nl.ndarray((1, 8), nl.int32, buffer=nl.sbuf)
    rows = x.reshape((TABLES * partitions, free))
    s = Scope(random, partitions, free, me, cores, x, rows, out, numbers, target)
    nisa.dma_copy(dst=numbers, src=index)
    for plane in range(2):
        tile = s.tile(nl.float32)
        s.note(nisa.dma_copy(dst=tile, src=x[plane]))
        s.tiles.append(tile)
    column = s.column()
    s.note(nisa.tensor_reduce(column, nl.maximum, s.tiles[0], axis=1))
    s.columns.append(column)
    for plane in range(TABLES):
        s.note(nisa.dma_copy(dst=out[me, plane], src=s.random.choice(s.tiles)))
    s.registers.append(nisa.register_alloc(random.randrange(TABLES)))
    s.left = steps
    results = []
    places = {random.randrange(steps): number for number in range(len(blocks))}
    for number in range(steps):
        if number in places:
            results.append(blocks[places[number]](*others[places[number]]))
        if s.left <= 0:
            break
        step(s)
    return (out, movement.dump(s, s.tiles[-6:], free), movement.dump(s, s.columns[-2:], 1), *results)


def step(s: Scope) -> None:
    """One more step of a body."""
    s.left -= 1
    special = s.random.random()
    if s.ordered or special > 0.2:
        chosen = s.random.choices(list(ANYWHERE), list(ANYWHERE.values()))[0]
        chosen(s)
    elif special < 0.04 and s.loops < 2:
        for_loop(s)
    elif special < 0.06 and s.loops < 2:
        while_loop(s)
    elif special < 0.08:
        in_order(s)
    elif special < 0.11 and not s.loops:
        movement.fixed(s)
    elif special < 0.15 and s.cores > 1 and not s.loops:
        movement.exchange(s)
    else:
        elementwise.tensor_tensor(s)


def _inside(s: Scope, seed: int, ordered: bool = False, index: Any = None) -> Scope:
    inner = s.inner(seed, ordered)
    if index is not None:
        inner.registers.append(index)
    for _ in range(inner.random.randint(1, 4)):
        step(inner)
    return inner


def for_loop(s: Scope) -> None:
    """``0 <= index < TABLES`` with constant or register bounds, or over a span that is empty."""
    seed, stride = s.random.getrandbits(32), s.random.choice([1, 1, 1, 2, 3])
    lower = s.random.choice([0, 0, 1])
    upper = s.register() if s.chance(0.3) else s.random.choice([1, 2, 3, 4, 4, 4])
    nl.fori_loop(lower, upper, lambda i: _forget(_inside(s, seed, index=i)), stride)
    s.handles.clear()
    s.left -= 2


def while_loop(s: Scope) -> None:
    """Counts down from a number below TABLES."""
    seed = s.random.getrandbits(32)

    def body(count: Any) -> Any:
        seen = nisa.register_alloc()  # steps may change it, and the loop has to end
        nisa.register_move(seen, count)
        _inside(s, seed, index=seen)
        following = nisa.register_alloc()
        nisa.register_move(following, count - 1)
        return following

    start = nisa.register_alloc()
    nisa.register_move(start, s.register())
    nl.while_loop(start, body)
    s.handles.clear()
    s.left -= 2


def in_order(s: Scope) -> None:
    seed = s.random.getrandbits(32)
    with nl.no_reorder():
        inner = _inside(s, seed, ordered=True)
    s.tiles[:], s.columns[:], s.sums[:], s.registers[:] = inner.tiles, inner.columns, inner.sums, inner.registers


def _forget(_: Any) -> None:
    """A body of nl.fori_loop returns nothing."""
