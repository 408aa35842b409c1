"""``while register:`` and what else may be the condition of a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.frontend.kernels.accepted.case import Case, number


def stored(*registers: Any) -> Any:
    out = nl.ndarray((1, len(registers)), nl.int32, buffer=nl.shared_hbm)
    for k, register in enumerate(registers):
        nisa.register_store(out[0:1, k : k + 1], register)
    return out


def collatz(n: Any) -> Any:
    """Number of halvings in a chain that ends at 1, with the condition from a tensor."""
    value = nl.load(n)
    trips = nisa.register_alloc(0)
    left = nisa.register_alloc(value)
    while left:
        nisa.tensor_scalar(dst=value, data=value, op0=nl.right_shift, operand0=1)
        nisa.register_load(left, value)
        nisa.register_move(trips, nisa.NkiScalar(trips) + 1)
    else:  # noqa: PLW0120
        nisa.register_move(left, 7)
    return stored(trips, left)


class State:
    """A register in an attribute, and a method that loops on it."""

    def __init__(self, n: Any) -> None:
        self.left = nisa.register_alloc(nl.load(n))
        self.trips = nisa.scalar_load(nl.load(n))
        nisa.register_move(self.trips, 0)

    def run(self) -> None:
        while self.left:
            nisa.register_move(self.left, nisa.NkiScalar(self.left) >> 1)
            nisa.register_move(self.trips, self.trips + 1)


def attribute(n: Any) -> Any:
    state = State(n)
    state.run()
    nisa.register_move(state.left, 7)
    return stored(state.trips, state.left)


def computed(n: Any) -> Any:
    value, trips = nisa.scalar_load(nl.load(n)), nisa.NkiScalar(nisa.register_alloc(0))
    while value > 0:
        nisa.register_move(value, value >> 1)
        nisa.register_move(trips, trips + 1)
    nisa.register_move(value, 7)
    return stored(trips, value)


def nested(n: Any) -> Any:
    """The inner loop runs as often as the outer one has trips left, and is entered anew each time."""
    outer, total = nisa.scalar_load(nl.load(n)), nisa.NkiScalar(nisa.register_alloc(0))
    while outer:
        inner = nisa.register_alloc()
        nisa.register_move(inner, outer)
        while inner:
            nisa.register_move(total, total + 1)
            nisa.register_move(inner, nisa.NkiScalar(inner) - 1)
        nisa.register_move(outer, outer - 1)
    return stored(total, outer)


def recursive(n: Any, depth: int = 2) -> Any:
    """The same statement is open in several frames at once."""
    total = nisa.NkiScalar(nisa.register_alloc(0))

    def go(level: int) -> None:
        left = nisa.NkiScalar(nisa.register_alloc(nl.load(n)))
        while left:
            nisa.register_move(total, total + 1)
            if level:
                go(level - 1)
            nisa.register_move(left, left - 1)

    go(depth)
    return stored(total, 0 + total)


def python_conditions(n: Any) -> Any:
    """Python's own loops in and around one on the device."""
    total, k = nisa.NkiScalar(nisa.register_alloc(0)), 0
    while k < 4:
        k += 1
        if k == 2:
            continue
        left = nisa.NkiScalar(nisa.register_alloc(nl.load(n)))
        while left > 0:
            for j in range(5):
                if j == k:
                    break
                nisa.register_move(total, total + j)
            else:
                nisa.register_move(total, total + 100)
            nisa.register_move(left, left - 1)
    return stored(total, total)


def halvings(n: np.ndarray) -> np.ndarray:
    return np.array([[int(n[0, 0]).bit_length(), 7]])


def triangle(n: np.ndarray) -> np.ndarray:
    return np.array([[int(n[0, 0]) * (int(n[0, 0]) + 1) // 2, 0]])


def powers(n: np.ndarray) -> np.ndarray:
    return np.array([[sum(int(n[0, 0]) ** k for k in (1, 2, 3))] * 2])


def python_sum(n: np.ndarray) -> np.ndarray:
    return np.array([[int(n[0, 0]) * sum(sum(range(k)) for k in (1, 3, 4))] * 2])


COUNTS = [(number(n),) for n in (0, 1, 2, 9)]
CASES = [
    *(Case(kernel, COUNTS, halvings) for kernel in (collatz, attribute, computed)),
    Case(nested, COUNTS, triangle),
    Case(recursive, COUNTS[:3], powers),
    Case(python_conditions, COUNTS, python_sum),
]
