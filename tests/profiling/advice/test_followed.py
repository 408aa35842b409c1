"""Programs that are changed as an advice says, and compiled again: none gains more than is said to be possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nki.compiler import CompileConfig
from nki.core.tensor import Buffer, View
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes import pipeline
from nki.passes.context import Context
from nki.profiling.advice import balance
from nki.profiling.advice.ranking import LEAST, Evidence, Gain
from nki.profiling.build import profile_programs
from nki.profiling.facts.change import Change
from nki.profiling.facts.timed_core import is_transfer
from nki.spec.program import Block, Issued, Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.timeline import timeline
from tests.profiling.advice.test_ranking import CASES
from tests.profiling.ladders.attention import ATTENTION
from tests.profiling.ladders.layer_norm import LAYER_NORM
from tests.profiling.ladders.matmul_gelu import MATMUL_GELU

TRN2 = load_target("trn2")
Kernel = tuple[Callable[..., Any], Sequence[Any]]


def _kernels() -> dict[str, Kernel]:
    found: dict[str, Kernel] = {name: case.bad for name, case in CASES.items()}
    found |= {f"better {name}": case.good for name, case in CASES.items()}
    for name, ladder in (("matmul", MATMUL_GELU), ("attention", ATTENTION), ("layer norm", LAYER_NORM)):
        for number, rung in enumerate(ladder.rungs):
            found[f"{name} {number}"] = rung.kernel, ladder.arguments(ladder.small)
    return found


KERNELS = _kernels()


def compiled(kernel: Kernel, target: Target) -> tuple[Program, Program]:
    """A program before allocation and at the end; both have the same instructions."""
    traced = [tracer.program for tracer in trace_only(Launch(kernel[0]), tuple(kernel[1]), {}, target, Options())]
    stages: dict[str, Program] = {}

    def keep(stage: pipeline.Stage) -> None:
        stages[stage.name] = stage.programs[0]

    done = pipeline.compile_programs(traced, Context(target, config=CompileConfig()), pipeline.PIPELINE, keep)
    return stages["unroll"], done.programs[0]


def again(program: Program, target: Target) -> float:
    """ns of a program that is allocated and scheduled."""
    left = pipeline.PIPELINE[[item.name for item in pipeline.PIPELINE].index("unroll") + 1 :]
    done = pipeline.compile_programs([program], Context(target, config=CompileConfig()), left)
    return timeline(done.programs[0], target).makespan


def followed(before: Program, evidence: Evidence, change: Change) -> Program | None:
    """The program with other instructions, and without those that are gone; None if the change is of another kind."""
    if change.own_tiles or change.unrolled or change.no_ports or change.recipes.keys() - change.items.keys():
        return None
    if before.edges or before.fences or evidence.core.line.loops:
        return None
    items = evidence.core.items
    instead = {id(items[at]): issued for at, issued in change.items.items()}
    gone = {id(items[at]) for at in change.gone}
    tiles = _tiles(evidence, change)
    if tiles is None:
        return None
    kept = [instead.get(id(item), item) for item in before.body.walk() if id(item) not in gone]
    return replace(before, body=Block(before.body.buffers, [_with(issued, tiles) for issued in kept]))


def _tiles(evidence: Evidence, change: Change) -> dict[int, Buffer] | None:
    """The tile that is used in the place of that of an instruction which is gone; None if it is not one tile."""
    items = evidence.core.items
    writers = Counter(view.buffer.id for issued in items for view in issued.written())
    found: dict[int, Buffer] = {}
    for at, other in change.gone.items():
        if other in change.items or (other < 0 and not is_transfer(evidence.core, at)):
            continue
        (tile,) = (view for view in items[at].written())
        if other < 0 and tile.buffer.on_chip:
            other = _store_of(items, items[at])
        elif other < 0:
            continue
        if other < 0:
            return None
        source = _on_chip(items[other], tile)
        once = writers[tile.buffer.id] == 1 or change.gone[at] < 0
        if not once or source.buffer.shape != tile.buffer.shape:
            return None
        found[tile.buffer.id] = source.buffer
    return found


def _on_chip(issued: Issued, tile: View) -> View:
    """The tile that an instruction loads or computes, or that it stores."""
    return next(view for _, view in issued.views() if view.buffer.on_chip and view.buffer.id != tile.buffer.id)


def _store_of(items: Sequence[Issued], load: Issued) -> int:
    """The instruction that stored exactly what is loaded, or -1."""
    device = next(view for _, view in load.views() if not view.buffer.on_chip)
    return next((at for at, issued in enumerate(items) if device in issued.written()), -1)


def _with(issued: Issued, tiles: dict[int, Buffer]) -> Issued:
    def changed(value: Any) -> Any:
        if type(value) is not View:
            return tuple(map(changed, value)) if type(value) is tuple else value
        buffer = value.buffer
        while buffer.id in tiles:
            buffer = tiles[buffer.id]
        return value._replace(buffer=buffer)

    return issued._replace(arguments=type(issued.arguments)(*map(changed, issued.arguments)))


def gains(kernel: Kernel, target: Target, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """What each change saved that could be followed, and what was said to be possible."""
    asked: list[tuple[Evidence, Change, float]] = []
    most, expected, moved = Evidence.most, Evidence.expected, balance._moved
    last: list[Change] = []

    def timed(self: Evidence, change: Change) -> float:
        last[:] = [change]
        return expected(self, change)

    def balanced(evidence: Evidence, *arguments: Any) -> Gain:
        """Of a part that moves, the bound is found in another way than from the change that is timed."""
        found = moved(evidence, *arguments)
        if found.expected >= LEAST * evidence.makespan:
            asked.append((evidence, last[0], found.most))
        return found

    def noted(self: Evidence, change: Change) -> float:
        found = most(self, change)
        asked.append((self, change, found))
        return found

    before, after = compiled(kernel, target)
    with monkeypatch.context() as patched:
        patched.setattr(Evidence, "most", noted)
        patched.setattr(Evidence, "expected", timed)
        patched.setattr(balance, "_moved", balanced)
        profile_programs([after], target)
    found = []
    for evidence, change, said in asked:
        program = followed(before, evidence, change) if change.gone or change.items else None
        if program is not None:
            found.append((evidence.makespan - again(program, target), said))
    return found


def _marked(name: str) -> Any:
    slow = name.startswith("better") or name in ("layer norm 0", "layer norm 1")
    return pytest.param(name, marks=pytest.mark.slow) if slow else name


@pytest.mark.parametrize("name", [_marked(name) for name in KERNELS])
def test_no_change_saves_more_than_is_said_to_be_possible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for saved, most in gains(KERNELS[name], TRN2, monkeypatch):
        assert saved <= most + 1e-6


def test_many_changes_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all kinds that are changes of instructions; else the test above shows nothing."""
    followed_kernels = ("fusion", "engine-balance", "repeated-loads", "repeated-results", "round-trips", "layer norm 1")
    for name in followed_kernels:
        assert any(saved > 0.0 for saved, _ in gains(KERNELS[name], TRN2, monkeypatch)), name
