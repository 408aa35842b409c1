"""Whether a model as a whole is faster with the kernels that its parts are faster with.

What a part takes by itself does not say what happens where it meets others: its neighbours might have run at the same
time, or might have been one kernel with it. So a model is linked again without the kernels that save little, one
after another, and without any, and what is the fastest stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nki.graph.patterns.choice import Times

_CLEAR = 0.75
"""A kernel that takes less than this part of the time saves enough by itself to be left out with all others alone."""

_MOST_TRIALS = 4
"""Kernels that are left out one by one, those that save the least."""

_MOST_OPERATIONS = 4096
"""The size of models in which kernels are left out one by one; a larger one is linked once again, without any."""

TimeWithout = Callable[[Mapping[str, Times]], float]
"""What the model takes in ns where the parts with these keys are left as they are."""


class Everything(dict[str, Times]):
    """All parts, also those that nobody found yet: a pattern may find one where another one left it."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self._times = times

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Times:
        return self._times


_UNKNOWN = Times(0.0, 0.0)


def left_out(used: Mapping[str, Times], ns: float, operations: int, time_without: TimeWithout) -> dict[str, Times]:
    """The parts that are left as they are in the fastest whole, with its time with their kernels and without.

    Args:
        used: parts that a kernel computes, by what tells them from others, with what they take by themselves.
        ns: what the model takes with all of these kernels.
        operations: of the model.
    """
    possible = {key: times.ns / times.own_ns for key, times in used.items() if times.own_ns}
    doubtful = sorted((key for key in possible if possible[key] > _CLEAR), key=lambda key: -possible[key])
    found: dict[str, Times] = {}
    best = ns
    alone = len(possible) == 1  # then leaving it out is the trial without any
    for key in doubtful[: 0 if alone or operations > _MOST_OPERATIONS else _MOST_TRIALS]:
        now = time_without({**found, key: _UNKNOWN})
        if now < best:
            found[key], best = Times(best, now), now
    for key in list(found)[:-1]:  # what was left out first may be worth it without the others
        now = time_without({each: times for each, times in found.items() if each != key})
        if now < best:
            del found[key]
            best = now
    if possible:
        now = time_without(Everything(_UNKNOWN))
        if now < best:
            return Everything(Times(ns, now))
    return found
