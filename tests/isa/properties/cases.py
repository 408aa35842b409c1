"""Test cases: calls of one instruction, how they run as a kernel, and what is compared afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import nki
from nki.report import NkiWarning
from nki.spec.instruction import REGISTRY
from nki.spec.operator import Operator
from tests.isa.properties.compare import Bits, Expected, Near, mismatches
from tests.isa.properties.formats import F64, bits_of, decoded
from tests.isa.properties.places import Tile, fetch, image, part, place, view
from tests.support import environment


@dataclass(frozen=True)
class Same:
    """An operand that is the view of another one: in place."""

    of: str


@dataclass(frozen=True, repr=False)
class Case:
    """Calls of one instruction in a kernel, one after the other.

    Attributes:
        instruction: its name.
        target: where it runs.
        calls: arguments by name; tensors are tiles.
        seed: what it was drawn from.
    """

    instruction: str
    target: str
    calls: tuple[dict[str, Any], ...]
    seed: int

    def __repr__(self) -> str:
        texts = [", ".join(f"{name}={value!r}" for name, value in call.items()) for call in self.calls]
        return f"seed {self.seed} on {self.target}: " + "; ".join(f"{self.instruction}({text})" for text in texts)

    @property
    def values(self) -> list[Any]:
        return [value for call in self.calls for value in call.values()]

    @property
    def operators(self) -> set[str]:
        return {value.name for value in self.values if isinstance(value, Operator)}

    @property
    def dtypes(self) -> set[str]:
        return {value.dtype.name for value in self.values if isinstance(value, Tile)}


@dataclass
class State:
    """What references see and leave behind beside the operands.

    Attributes:
        target: name of the target.
        got: what the call wrote, by operand, as exact values: the input of a reduction of approximate values.
        registers: values of the accumulator registers, or None while they are undefined.
        warned, may_warn: codes of the warnings that must and that may appear.
    """

    target: str
    got: dict[str, F64] = field(default_factory=dict)
    registers: F64 | None = None
    warned: set[str] = field(default_factory=set)
    may_warn: set[str] = field(default_factory=set)


Reference = Callable[[Any, State], dict[str, Expected]]


@dataclass
class Outcome:
    """How many elements were compared, and what was wrong, in words."""

    compared: int = 0
    wrong: list[str] = field(default_factory=list)


class Plan:
    """A case as its kernel reads it.

    Attributes:
        tiles: call, operand and tile of every buffer that is filled.
        keys: call and operand of every buffer that is fetched.
    """

    def __init__(self, case: Case) -> None:
        self.declared = REGISTRY[case.instruction]
        self.calls = case.calls
        self.tiles = [(i, n, t) for i, call in enumerate(case.calls) for n, t in call.items() if isinstance(t, Tile)]
        self.keys = [(i, source_of(call, n)) for i, call in enumerate(case.calls) for n in written(case, call)]


def kernel(images: Any, plan: Any) -> Any:
    """Of every case, so that its source is checked once."""
    buffers = {(i, name): place(tile, data) for (i, name, tile), data in zip(plan.tiles, images, strict=True)}
    views = {(i, name): view(buffers[i, name], tile.layout, tile.shape) for i, name, tile in plan.tiles}
    for i, call in enumerate(plan.calls):
        given = {n: v for n, v in call.items() if not isinstance(v, Tile | Same)}
        given |= {n: views[i, n if isinstance(v, Tile) else v.of] for n, v in call.items() if n not in given}
        plan.declared(**given)
    return tuple(fetch(buffers[key]) for key in plan.keys)


def run(case: Case, compiled: bool = False) -> tuple[list[dict[str, Any]], set[str]]:
    """The written buffers of every call, and the codes of the warnings."""
    plan = Plan(case)
    made = nki.jit(kernel) if compiled else nki.simulate(kernel)
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=case.target), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = iter(made(tuple(image(tile) for _, _, tile in plan.tiles), plan))
    codes = {w.message.finding.code if isinstance(w.message, NkiWarning) else str(w.message) for w in caught}
    return [{name: next(results) for name in written(case, call)} for call in case.calls], codes


def written(case: Case, call: dict[str, Any]) -> list[str]:
    """Names of the tensors that a call writes."""
    operands = REGISTRY[case.instruction].operands
    return [n for n, value in call.items() if operands[n].writes and isinstance(value, Tile | Same)]


def source_of(call: dict[str, Any], name: str) -> str:
    """The operand whose tile an operand is."""
    return call[name].of if isinstance(call[name], Same) else name


def check(case: Case, reference: Reference) -> Outcome:
    """Run a case, and compare all that it wrote and all that it had to leave alone."""
    results, codes = run(case)
    outcome, state = Outcome(), State(case.target)
    for call, result in zip(case.calls, results, strict=True):
        tiles = {name: call[source_of(call, name)] for name in result}
        views = {
            name: part(result[name], tile.layout, tile.shape).reshape(tile.shape[0], -1) for name, tile in tiles.items()
        }
        state.got = {n: decoded(v, tiles[n].dtype) for n, v in views.items() if not tiles[n].dtype.is_packed}
        missing = dict.fromkeys(REGISTRY[case.instruction].operands)
        given = {n: call[source_of(call, n)] for n in call}
        expected = reference(SimpleNamespace(**missing | given), state)
        assert expected.keys() == result.keys(), "the reference names what is written"
        for name, want in expected.items():
            outcome.compared += views[name].size
            _compare(outcome, name, views[name], want, tiles[name], result[name])
    if not state.warned <= codes <= state.warned | state.may_warn:
        outcome.wrong.append(f"warnings are {sorted(codes)}, expected {sorted(state.warned)} {sorted(state.may_warn)}")
    return outcome


def _compare(outcome: Outcome, name: str, got: Any, want: Expected, tile: Tile, whole: Any) -> None:
    assert isinstance(want, Bits | Near), "a reference gives bits or values"
    wrong = mismatches(want, got, tile.dtype)
    if wrong.any():
        where = tuple(int(n) for n in np.argwhere(wrong)[0])
        shown = got[where] if tile.dtype.is_packed else decoded(got, tile.dtype)[where]
        outcome.wrong.append(
            f"{name}{list(where)} is {shown!r}, expected {want.shown(where, tile.dtype)}; {wrong.sum()} in all"
        )
    after, before = bits_of(whole).copy(), bits_of(tile.buffer)
    part(after, tile.layout, tile.shape)[...] = part(before, tile.layout, tile.shape)
    if (after != before).any():
        outcome.wrong.append(f"{name}: {(after != before).sum()} elements outside the view changed")
