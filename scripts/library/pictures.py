"""The pictures of a page: what each engine does over time, and where the cases stand under the roofline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.library.case import Case
from benchmarks.library.timeline import rows
from scripts.concept_pictures import Picture

from nki.target import load_target

_LEFT, _ROW, _WIDTH = 70, 30, 720


def timeline_picture(record: dict[str, Any]) -> str:
    """One row for each engine that works; the height says which part of a slice of the time it works."""
    timeline = record["timeline"]
    engines = list(rows(timeline))
    height = _ROW * len(engines) + 46
    p = Picture(_LEFT + _WIDTH + 60, height, f"Engines over time: {timeline['case']}")
    step = _WIDTH / len(engines[0][1])
    for number, (name, levels) in enumerate(engines):
        bottom = 22 + _ROW * (number + 1)
        p.text(_LEFT - 8, bottom - 7, name, anchor="end")
        p.parts.append(f'<path class="{_KIND[name]}" d="{_area(levels, step, bottom)}"/>')
        p.line(_LEFT, bottom, _LEFT + _WIDTH, bottom, "thin")
        busy = timeline["time"][name].get("busy", 0.0)
        p.text(_LEFT + _WIDTH + 8, bottom - 7, f"{busy:.0%}", "small", anchor="start")
    bottom = 22 + _ROW * len(engines)
    for quarter in range(5):
        x = _LEFT + _WIDTH * quarter / 4
        p.line(x, 18, x, bottom + 4, "thin")
        p.text(x, bottom + 18, f"{timeline['ns'] * quarter / 4e3:,.1f}", "small")
    p.text(_LEFT + _WIDTH + 30, bottom + 18, "µs", "small", anchor="start")
    p.text(_LEFT + _WIDTH + 8, 14, "busy", "small", anchor="start")
    p.text(_LEFT, 14, timeline["case"], "small", anchor="start")
    return p.svg()


_KIND = {"tensor": "c", "vector": "a", "scalar": "a", "gpsimd": "a", "sync": "b", "dma": "b"}


def _area(levels: Sequence[float], step: float, bottom: float) -> str:
    """The area below steps of these heights."""
    parts = [f"M{_LEFT} {bottom}"]
    for place, level in enumerate(levels):
        parts.append(f"V{bottom - level * (_ROW - 6):.0f}H{_LEFT + step * (place + 1):.0f}")
    return "".join([*parts, f"V{bottom}Z"])


def roofline_picture(record: dict[str, Any], cases: dict[str, Case]) -> str | None:
    """Cases by intensity and rate, under the peaks of DMA and Tensor for their dtype; None if no case multiplies."""
    points = [
        (number, case.flops / case.hbm_bytes, case.flops / (row["ns"] * case.lnc), case)
        for number, row in enumerate(record["cases"], 1)
        if (case := cases[row["key"]]).flops
    ]
    if not points:
        return None
    target = load_target(points[0][3].target)
    peaks = sorted({getattr(target.peak, f"tensor_{case.peak}_tflops") * 1e3 for *_, case in points})
    area = _Logarithmic([point[1] for point in points], [point[2] for point in points], peaks)
    p = Picture(460, 300, f"{record['kernel']} under the roofline")
    rate = target.dma.aggregate_gbps
    for peak in peaks:
        corner = peak / rate
        p.line(*area.at(area.least_x, area.least_x * rate), *area.at(corner, peak))
        p.line(*area.at(corner, peak), *area.at(area.most_x, peak))
        p.text(
            area.at(area.most_x, peak)[0],
            area.at(area.most_x, peak)[1] - 6,
            f"{peak / 1e3:.0f} TFLOP/s",
            "small",
            "end",
        )
    for number, x, y, _ in points:
        left, top = area.at(x, y)
        p.parts.append(f'<circle class="tip" cx="{left:.1f}" cy="{top:.1f}" r="3"/>')
        p.text(left + 6, top + 12, str(number), "small", "start")
    for power in area.powers():
        p.text(area.at(2.0**power, 1.0)[0], 282, f"{2**power:,}", "small")
    p.text(230, 296, "FLOP for each byte that has to be moved", "small")
    p.text(12, 150, "FLOP per ns of a core", "small", turn=-90)
    return p.svg()


class _Logarithmic:
    """Places in a picture on two logarithmic scales."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], peaks: Sequence[float]) -> None:
        self.least_x, self.most_x = min(*xs, 64.0) / 2, max(*xs, 512.0) * 2
        self._least_y, self._most_y = min(ys) / 2, max(peaks) * 1.5

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is; below the picture's bottom it is at the bottom."""
        across = math.log(x / self.least_x) / math.log(self.most_x / self.least_x)
        up = math.log(max(y, self._least_y) / self._least_y) / math.log(self._most_y / self._least_y)
        return 30 + 420 * across, 268 - 250 * up

    def powers(self) -> list[int]:
        """Powers of two that are shown."""
        first, last = math.ceil(math.log2(max(self.least_x, 1.0))), math.floor(math.log2(self.most_x))
        return list(range(first, last + 1, max(1, (last - first) // 6)))
