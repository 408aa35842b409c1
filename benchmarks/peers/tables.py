"""Tables of what was measured: times, ratios with their range, and what a process costs beside its calls."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.peers.measure import quartiles

RIVALS = ("torch", "standin", "triton", "pallas")
Bounds = tuple[float, float, float]


def report(data: dict[str, Any]) -> str:
    """Everything as text."""
    clock = "cpu" if data["threads"] == 1 else "wall"
    parts = [f"{'CPU' if clock == 'cpu' else 'wall'} ms per call, {data['threads']} thread(s): median ± half the "
             "distance of the quartiles; ratios: their time over ours, > 1: ours is faster"]  # fmt: skip
    parts += data["notes"]
    for label, matmul in data["modes"].items():
        parts += ["", f"{label} (NKI_MATMUL={matmul})", _times(data["cases"], label, clock)]
    parts += ["", "this package", *(_process(data["cases"], label) for label in data["modes"])]
    return "\n".join(parts)


def _times(cases: dict[str, dict[str, Any]], label: str, clock: str) -> str:
    ours = (f"eager {label}", f"compiled {label}")
    rivals = [rival for rival in RIVALS if any(rival in rows for rows in cases.values())]
    heads = [*ours, *rivals, *(f"{rival}/compiled" for rival in rivals)]
    lines = [f"{'':16}" + "".join(f"{head:>20}" for head in heads)]
    ratios: dict[str, list[Bounds]] = {rival: [] for rival in rivals}
    for name, rows in cases.items():
        cells = [_cell(rows.get(row), clock) for row in (*ours, *rivals)]
        for rival in rivals:
            ratio = _ratio(rows.get(rival), rows.get(ours[1]), clock)
            cells.append("-" if ratio is None else f"{ratio[1]:.2f}")
            if ratio is not None:
                ratios[rival].append(ratio)
        lines.append(f"{name:16}" + "".join(f"{cell:>20}" for cell in cells))
    blank = [""] * (len(ours) + len(rivals))
    means = [_mean(ratios[rival]) for rival in rivals]
    lines.append(f"{'geomean':16}" + "".join(f"{cell:>20}" for cell in (*blank, *means)))
    return "\n".join(lines)


def _process(cases: dict[str, dict[str, Any]], label: str) -> str:
    heads = ["fresh call ms", "first call ms", "start CPU ms", "start wall ms", "peak MiB", "error", "others' cores",
             "instructions", "1 -> n threads"]  # fmt: skip
    lines = [f"{'compiled ' + label:16}" + "".join(f"{head:>15}" for head in heads)]
    for name, rows in cases.items():
        found = rows.get(f"compiled {label}")
        if found is None or "wall" not in found:
            continue
        alone = found.get("one_thread", {}).get("wall")
        cells = [
            _ms(found["fresh_first_cpu"]), _ms(found["first_cpu"]), _ms(found["start_cpu"]), _ms(found["start_wall"]),
            f"{found['peak_mib']:.0f}", f"{found['error']:.1e}", f"{found.get('foreign_cores', math.nan):.2f}",
            str(found["facts"].get("instructions", "-")),
            f"{quartiles(alone)[1] / quartiles(found['wall'])[1]:.2f}x" if alone else "-",
        ]  # fmt: skip
        lines.append(f"{name:16}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _bounds(found: dict[str, Any] | None, clock: str) -> Bounds | None:
    if found is None or "failed" in found or clock not in found:
        return None
    return quartiles(found[clock])


def _cell(found: dict[str, Any] | None, clock: str) -> str:
    bounds = _bounds(found, clock)
    if bounds is None:
        return "failed" if found is not None and "failed" in found else "-"
    low, middle, high = bounds
    return f"{middle * 1e3:.2f} ±{(high - low) / 2 / middle:.0%}"


def _ratio(theirs: dict[str, Any] | None, ours: dict[str, Any] | None, clock: str) -> Bounds | None:
    above, below = _bounds(theirs, clock), _bounds(ours, clock)
    if above is None or below is None:
        return None
    return above[0] / below[2], above[1] / below[1], above[2] / below[0]


def _mean(ratios: list[Bounds]) -> str:
    if not ratios:
        return "-"
    low, middle, high = (math.exp(sum(math.log(each[i]) for each in ratios) / len(ratios)) for i in range(3))
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"
