"""What a profile says beside its tables: names, totals, the hardware, advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nki.profiling.schema import FORMAT, VERSION


@dataclass(frozen=True, slots=True)
class About:
    """What a profile says beside its tables; see docs/profile.md for each value."""

    kernel: str
    target: str
    validated: bool
    generator: str
    cores: int
    makespan_ns: float
    launch_ns: float
    totals: list[dict[str, Any]]
    hardware: dict[str, Any]
    advice: list[dict[str, Any]]
    accuracy: dict[str, Any]
    imitate: str = ""
    kept_loads: list[dict[str, Any]] = field(default_factory=list)
    is_simulation: bool = True

    def to_json(self) -> dict[str, Any]:
        """``profile.json``."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "is_simulation": self.is_simulation,
            "kernel": self.kernel,
            "target": self.target,
            "validated": self.validated,
            "accuracy": self.accuracy,
            "generator": self.generator,
            "cores": self.cores,
            "makespan_ns": self.makespan_ns,
            "launch_ns": self.launch_ns,
            "totals": self.totals,
            "hardware": self.hardware,
            "advice": self.advice,
            "imitate": self.imitate,
            "kept_loads": self.kept_loads,
        }
