"""What a run used: instructions per engine, bytes moved, on-chip memory; for `run` and `demo` alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nki.passes.analysis.pressure import memory_peak
from nki.report import Report
from nki.spec.program import Program
from nki.target.model import Target


@dataclass(frozen=True, slots=True)
class Usage:
    """On-chip memory of the core that needs most, in bytes per partition."""

    sbuf: int
    psum: int

    def to_json(self) -> dict[str, int]:
        """JSON types only."""
        return {"sbuf_bytes_per_partition": self.sbuf, "psum_bytes_per_partition": self.psum}


def usage_of(programs: Sequence[Program]) -> Usage:
    """The peaks over all cores."""
    peaks = [memory_peak(program) for program in programs]
    return Usage(max(peak.sbuf for peak in peaks), max(peak.psum for peak in peaks))


def usage_rows(report: Report, usage: Usage, target: Target) -> list[tuple[str, str]]:
    """Rows for people: label and text."""
    counts = sorted(report.instructions().items(), key=lambda item: -item[1])
    return [
        ("instructions", ", ".join(f"{engine} {count}" for engine, count in counts) or "none"),
        ("DMA", f"{report.dma_bytes() / 2**20:.2f} MiB"),
        ("SBUF peak", _share(usage.sbuf, target.sbuf.bytes_per_partition)),
        ("PSUM peak", _share(usage.psum, target.psum.bytes_per_partition)),
    ]


def _share(used: int, capacity: int) -> str:
    return f"{used / 1024:.2f} of {capacity / 1024:.0f} KiB per partition ({used / capacity:.0%})"
