"""Every instruction of every legal example, executed once, with what its body did beside its operands."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

import nki
from nki.core.tensor import View
from nki.report import NkiWarning
from nki.sim.machine import Machine
from nki.spec.program import Issued
from tests.isa import examples
from tests.isa.registry import Breaks, Legal
from tests.support import environment

STATE = {
    "read_accumulator": "accumulator",
    "write_accumulator": "accumulator",
    "clobber_accumulator": "accumulator",
    "accumulator_defined": "accumulator",
    "random_bits": "random",
    "seed_random": "random",
    "random_state": "random",
    "say": "print",
    "barrier": "rendezvous",
    "exchange": "rendezvous",
}
"""The methods of an array namespace that reach what instructions share, and the effect that each one is."""

MEMORY = ("load", "load_raw", "column", "store", "store_raw", "copy", "dma", "gather", "accumulate")


class Executed(NamedTuple):
    """One instruction of an example.

    Attributes:
        example: the instruction that the example is for.
        target: name of the target.
        issued: the instruction.
        used: effects of its body.
    """

    example: str
    target: str
    issued: Issued
    used: frozenset[str]


@cache
def all_examples() -> tuple[Legal | Breaks, ...]:
    """The examples of all families."""
    modules = (importlib.import_module(f"tests.isa.examples.{m.name}") for m in pkgutil.iter_modules(examples.__path__))
    return tuple(example for module in modules for example in module.EXAMPLES)


def one_target_each() -> Iterator[tuple[Legal | Breaks, str]]:
    """Each example with one of its targets, all targets in turn: rules and operands are the same code on each."""
    for number, example in enumerate(all_examples()):
        targets = example.targets if isinstance(example, Legal) else (example.target,)
        yield example, targets[number % len(targets)]


@cache
def executed() -> tuple[Executed, ...]:
    """Runs the legal examples on each of their targets."""
    found: list[Executed] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # Some examples have integers that float32 rounds, whichever test comes first and runs all of them.
        warnings.filterwarnings("ignore", r"\[lint.integer-precision\]", NkiWarning)
        spy = _Spy(found)
        spy.install(patch)
        for example in all_examples():
            for target in example.targets if isinstance(example, Legal) else ():
                spy.example, spy.target = example.instruction, target
                made = nki.simulate(nki.jit(example.kernel))
                with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target, NKI_NATIVE="0"):
                    (made if example.lnc is None else made[example.lnc])(*copy.deepcopy(example.arguments()))
    return tuple(found)


class _Spy:
    """Stands between the bodies and the machine; two cores are two machines, which take turns."""

    def __init__(self, found: list[Executed]) -> None:
        self.found, self.example, self.target = found, "", ""
        self.running: dict[int, tuple[set[str], set[int]]] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name, effect in STATE.items():
            patch.setattr(Machine, name, self._state(getattr(Machine, name), effect))
        for name in MEMORY:
            patch.setattr(Machine, name, self._memory(getattr(Machine, name)))
        patch.setattr(Machine, "run", self._run(Machine.run))

    def _run(self, original: Callable[..., None]) -> Callable[..., None]:
        def run(machine: Machine, issued: Issued) -> None:
            operands = {buffer for _, view in issued.views() for buffer in _buffers(view)}
            used: set[str] = set()
            self.running[id(machine)] = (used, operands)
            original(machine, issued)
            self.found.append(Executed(self.example, self.target, issued, frozenset(used)))

        return run

    def _state(self, original: Callable[..., Any], effect: str) -> Callable[..., Any]:
        def method(machine: Machine, *arguments: Any) -> Any:
            self.running[id(machine)][0].add(effect)
            return original(machine, *arguments)

        return method

    def _memory(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(machine: Machine, *arguments: Any, **options: Any) -> Any:
            used, operands = self.running.get(id(machine), (set(), set()))
            views = [argument for argument in arguments if isinstance(argument, View)]
            if any(view.buffer.id not in operands for view in views):
                used.add("fence")
            return original(machine, *arguments, **options)

        return method


def _buffers(view: View) -> Iterator[int]:
    yield view.buffer.id
    if view.dynamic is not None and isinstance(view.dynamic.indices, View):
        yield from _buffers(view.dynamic.indices)
