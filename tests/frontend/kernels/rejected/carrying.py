"""Python names that would have to carry a value from trip to trip, or out of the loop."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl


class Counter:
    count = 0

    def __init__(self) -> None:
        self.count = 0


def tensor(a: Any) -> Any:
    tile = nl.load(a)
    for _ in nl.dynamic_range(4):
        tile = nl.add(tile, 1)  # error: loop.carried
    return a


def conditional(a: Any) -> Any:
    previous = None
    for i in nl.dynamic_range(0):
        if previous is not None:
            nl.add(previous, 1)
        previous = nl.load(a.select(0, i))  # error: loop.carried
    return a


def read_after(a: Any) -> Any:
    view = a
    for _ in nl.dynamic_range(2):
        view = a.reshape((1,))  # error: loop.carried
    out = nl.ndarray(view.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(view))
    return out


def read_by_the_next_round(a: Any) -> Any:
    """An enclosing Python loop reads the name before it binds it again."""
    view = a
    for _ in range(2):
        nl.load(view)
        for _ in nl.dynamic_range(2):
            view = a.reshape((1,))  # error: loop.carried
    return a


def captured(a: Any) -> Any:
    view = a

    def late() -> Any:
        return nl.load(view)

    for _ in nl.dynamic_range(2):
        view = a.reshape((1,))  # error: loop.carried
    late()
    return a


def number(a: Any) -> Any:
    count = 0
    left = nisa.register_alloc(3)
    while left:
        count += 1  # error: loop.carried
        nisa.register_move(left, 0)
    return a


def attribute(a: Any) -> Any:
    state = Counter()
    for _ in nl.dynamic_range(2):
        state.count += 1  # error: loop.carried
    return a


def condition(a: Any) -> Any:
    left = nisa.scalar_load(a)
    while left:
        left = left - 1  # error: loop.carried
    return a


def named_condition(a: Any) -> Any:
    """The condition is computed anew at the end of each trip, too late for the body that was traced."""
    left = nisa.scalar_load(a)
    while (rest := left.maximum(0)) > 0:  # error: loop.carried
        nisa.register_move(left, rest - 1)
    return a


def other_condition(a: Any) -> Any:
    states = [nisa.register_alloc(1)]
    while states[0]:  # error: loop.carried
        states[0] = nisa.register_alloc(0)
    return a


def body_function(a: Any) -> Any:
    total = 0

    def body(i: Any) -> None:
        nonlocal total
        total += 1

    nl.fori_loop(0, 4, body)  # error: loop.carried
    return a


def python_decision(a: Any) -> Any:
    """Only eager mode runs a second trip; the name is what both refuse."""
    first = True
    for _ in nl.dynamic_range(3):
        if first:
            nl.load(a)
        first = False  # error: loop.carried
    return a


KERNELS = [
    tensor,
    conditional,
    read_after,
    read_by_the_next_round,
    captured,
    number,
    attribute,
    condition,
    named_condition,
    other_condition,
    body_function,
    python_decision,
]
