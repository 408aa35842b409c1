"""What the busiest core of a case does over time, small enough to be kept: how busy each engine is in each slice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from benchmarks.library.case import Case
from benchmarks.library.measure import target

import nki
from nkilib.catalogue import kernel

SLICES = 180
"""Of the time, in a timeline."""

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")

_LEVELS = "0123456789abcdefghijklmnop"
"""How busy an engine is in a slice, from not at all to all of the time."""

Span = tuple[float, float]
"""From when to when, in ns."""

_ADVICE = 3
"""Pieces of advice that are kept."""


def timeline(case: Case) -> dict[str, Any]:
    """Of the core that takes longest: a text for each engine, where its time went, and the profile's advice."""
    with target(case.target):
        found = nki.profile(kernel(case.kernel)[case.lnc])(**case.shapes())
    told = found.to_json()
    core = max(range(case.lnc), key=lambda number: float(told["totals"][number]["makespan_ns"]))
    totals, makespan = told["totals"][core], float(told["totals"][core]["makespan_ns"])
    usage = _usage(found, core, makespan, told["hardware"]["dma_bytes_per_ns"])
    return {
        "case": case.key,
        "ns": makespan,
        "engines": {name: "".join(_LEVELS[round(min(1.0, float(x)) * 25)] for x in usage[name]) for name in ENGINES},
        "time": {name: _shares(told["time"][core].get(name, {}), makespan) for name in ENGINES},
        "bounds": {name: round(ns, 1) for name, ns in totals["bounds"].items() if ns},
        "sbuf_peak_bytes": totals["sbuf_peak_bytes"],
        "psum_peak_bytes": totals["psum_peak_bytes"],
        "accuracy": told["accuracy"]["text"],
        "advice": [{name: each[name] for name in ("message", "fix", "share")} for each in told["advice"][:_ADVICE]],
    }


def levels(text: str) -> list[float]:
    """The shares that a text of a timeline stands for."""
    return [_LEVELS.index(each) / 25 for each in text]


def _shares(spent: Mapping[str, float], makespan: float) -> dict[str, float]:
    return {name: round(ns / makespan, 4) for name, ns in spent.items() if ns / makespan >= 0.0005}


def _usage(found: Any, core: int, makespan: float, rate: float) -> dict[str, np.ndarray[Any, Any]]:
    """For each slice, the part of it in which an engine works; of DMA the part of its full rate."""
    edges = np.linspace(0.0, makespan, SLICES + 1)
    usage = {name: np.zeros(SLICES) for name in ENGINES}
    instructions, transfers = found["instructions"], found["dma"]
    work: dict[str, list[tuple[float, float]]] = {name: [] for name in ENGINES}
    for row in instructions.rows():
        if row["core"] == core:
            work[row["engine"]].append((row["start_ns"], row["end_ns"]))
    for row in transfers.rows():
        if row["core"] == core and row["end_ns"] > row["start_ns"]:
            span = [(row["start_ns"], row["end_ns"])]
            usage["dma"] += _covered(edges, span) * row["nbytes"] / (row["end_ns"] - row["start_ns"]) / rate
            if row["trigger"]:
                work[row["trigger"]].append((row["trigger_ns"], row["issued_ns"]))
    for name in ENGINES[:-1]:
        usage[name] = _covered(edges, _joined(work[name]))
    for loop in found["loops"].rows():
        if loop["core"] == core and loop["end_ns"] > loop["start_ns"] + loop["trip_ns"]:
            _repeat(usage, edges, loop)
    return usage


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Intervals without what they have in common."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _covered(edges: np.ndarray[Any, Any], spans: Iterable[Span]) -> np.ndarray[Any, Any]:
    """The part of each slice that intervals, which do not overlap, cover."""
    covered = np.zeros(len(edges) - 1)
    for start, end in spans:
        covered += np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0.0, None)
    return covered / (edges[1] - edges[0])


def _repeat(usage: Mapping[str, np.ndarray[Any, Any]], edges: np.ndarray[Any, Any], loop: Mapping[str, float]) -> None:
    """Later trips of a device loop, of which a profile has the first one, are as busy as that on the average."""
    again = loop["start_ns"] + loop["trip_ns"]
    first = _covered(edges, [(loop["start_ns"], again)])
    later = _covered(edges, [(again, loop["end_ns"])])
    for name in usage:
        usage[name][:] += later * (usage[name] @ first / max(first.sum(), 1e-12))


def rows(record: Mapping[str, Any]) -> Iterator[tuple[str, list[float]]]:
    """The engines of a timeline that work at all, with their levels."""
    for name, text in record["engines"].items():
        if set(text) != {"0"}:
            yield name, levels(text)
