"""Values over time: occupancy of memories, rates of transfers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from nki.profiling.facts.memory_occupancy import Change, Lifetime, changes
from nki.profiling.facts.timed_core import CoreFacts
from nki.profiling.facts.work import Facts

Series = list[tuple[float, float]]
"""From when on which value holds."""

_ROUNDING = 1e-9
"""Part of the largest value so far; what is less is none."""


def counters(core: CoreFacts, facts: list[Facts], lives: Iterable[Lifetime]) -> dict[str, Series]:
    """All counters of a core by name."""
    steps = {**changes(lives, core), **_rates(core, facts)}
    found = {name: series(changed) for name, changed in sorted(steps.items())}
    sbuf = [values for name, values in found.items() if name.startswith("sbuf_partition_")]
    psum = [values for name, values in found.items() if name.startswith("psum_bank_")]
    found["sbuf_bytes"] = _together(sbuf, max)
    found["psum_bytes"] = _together(psum, sum)
    return found


def _together(parts: Sequence[Series], combine: Callable[[list[float]], float]) -> Series:
    """One series of several: the largest value, or the sum."""
    now = [0.0] * len(parts)
    found: Series = []
    for time, part, value in sorted((time, part, value) for part, values in enumerate(parts) for time, value in values):
        now[part] = value
        total = float(combine(now))
        if found and found[-1][0] == time:
            found[-1] = (time, total)
        elif not found or found[-1][1] != total:
            found.append((time, total))
    return found


def _rates(core: CoreFacts, facts: list[Facts]) -> dict[str, list[Change]]:
    """Each transfer counts with its mean rate while its data move."""
    found: dict[str, list[Change]] = defaultdict(list)
    for position in core.transfers():
        start, end, fact = core.move[position], core.end[position], facts[position]
        if end <= start:
            continue
        rate = fact.nbytes / (end - start)
        names = ["dma_bytes_per_ns"]
        names += ["hbm_read_bytes_per_ns"] if fact.reads[0] else []
        names += ["hbm_write_bytes_per_ns"] if fact.writes[0] else []
        for name in names:
            found[name] += [(start, rate), (end, -rate)]
        found["dma_in_flight"] += [(start, 1.0), (end, -1.0)]
    return found


def series(steps: Iterable[Change]) -> Series:
    """The running sum of changes; what comes and goes at the same time is one step."""
    found: Series = []
    value = largest = 0.0
    for time, change in sorted(steps):
        value += change
        largest = max(largest, value)
        value = value if abs(value) > _ROUNDING * largest else 0.0  # what rounding left over
        if found and found[-1][0] == time:
            found.pop()
        if not found or found[-1][1] != value:
            found.append((time, value))
    return found


def peak(values: Series) -> float:
    """The largest value."""
    return max((value for _, value in values), default=0.0)
