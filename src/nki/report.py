"""How a result was produced: the record that every call leaves behind, and the warnings it raised."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple

from nki.core.html import html_table
from nki.core.source import STARTED, is_internal
from nki.core.visible import visible
from nki.spec.engine import engine as Engine
from nki.spec.kept_load import KeptLoad, said
from nki.spec.program import Issued, Program
from nki.spec.rule import Finding


class NkiWarning(UserWarning):
    """Something that is allowed but probably not meant; `finding` holds the facts.

    Its text begins with one line that says everything; the user's line with a caret and the rule follow.
    """

    def __init__(self, finding: Finding) -> None:
        lines = [f"[{finding.code}] {finding.message}; {finding.fix} ({finding.location})"]
        if finding.location.frames:
            lines.append(finding.location.excerpt())
        if finding.rule:
            lines.append(f"  rule: {finding.rule}")
        lines.append(f"  `nki explain {finding.code}` tells more")
        super().__init__(visible("\n".join(lines)))
        self.finding = finding


_SILENCED: ContextVar[bool] = ContextVar("silenced", default=False)
"""Whether warnings of this context are wanted; `silenced` puts the value before back."""


@contextmanager
def silenced() -> Iterator[None]:
    """Within this block, this thread warns of nothing; the filters of `warnings` belong to all threads."""
    token = _SILENCED.set(True)
    try:
        yield
    finally:
        _SILENCED.reset(token)


def warn(finding: Finding) -> None:
    """Warn of a finding, with the file and the line of the user's call that led here, not of a framework's."""
    if _SILENCED.get():
        return
    warning, frame = NkiWarning(finding), _outside(sys._getframe(1))
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__", "<unknown>")
    warnings.warn_explicit(warning, NkiWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _outside(frame: FrameType) -> FrameType:
    """The first frame that is not between; a thread's first frame is followed by the one that started the thread."""
    started = STARTED.get()
    while _between(frame):
        if frame.f_back is not None:
            frame = frame.f_back
        elif started is not None:
            frame, started = started, None
        else:
            break
    return frame


def _between(frame: FrameType) -> bool:
    """Whether a frame is of this package, or of a framework that called it for the user, or of code which that made."""
    module = frame.f_globals.get("__name__") or ""
    return is_internal(frame.f_code) or not module or module.partition(".")[0] in _FRAMEWORKS


_FRAMEWORKS = ("torch", "jax", "jaxlib", "threading")


class Executed(NamedTuple):
    """Who executed the instructions of a call; both executors give the same bits.

    Attributes:
        native: how many are compiled functions; instructions in a device loop count once in compiled mode.
        interpreted: how many NumPy executed, where there was native code at all; None if NumPy executed all of them.
        reasons: why NumPy executed them, as far as that is known, and how many for each reason.
        trips: for each core of a compiled kernel, how often the body of each device loop ran whose bounds depend on
            data, by the number of the loop.
    """

    native: int = 0
    interpreted: int | None = None
    reasons: Mapping[str, int] = MappingProxyType({})
    trips: tuple[Mapping[int, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {"native": self.native, "interpreted": self.interpreted, "reasons": dict(self.reasons)}

    def __str__(self) -> str:
        if self.interpreted is None or not self.native:
            return "on the NumPy machine"
        if not self.interpreted:
            return "natively"
        return f"natively, {self.interpreted} of {self.native + self.interpreted} instructions on the NumPy machine"


NUMPY = Executed()

_FINDINGS = 2
"""Findings that the text of a report shows, so that it has ten lines at most."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """One call.

    Attributes:
        kernel: name of the function.
        target: what it was verified and run for.
        mode: "eager" or "compiled".
        cores: how many cores ran it.
        matmul: how products were summed: "ordered" (equal bits everywhere), "fast" or "blas" (within ulps).
        precise_fp: False if low-precision tensors kept float32 values.
        kernel_hash: hash of the IR that ran; empty in eager mode.
        findings: warnings of the verifier and of the run.
        programs: what ran on each core.
        compiled: "compiled" in this call, from "memory" or from "disk"; empty in eager mode.
        doubt: why the kernel is traced in every call, and compiled if that gives something else; empty if it is not.
        statements: settings of ``nki.jit`` that differ from their defaults, and what they change.
        executed: who executed the instructions.
        imitate: `Options.imitate` of the compilation, also of the one that a profile of an eager call makes; empty
            where nobody knows.
        kept_loads: loads that were left out in compiled mode, because what they bring was there, line by line.
    """

    kernel: str
    target: str
    mode: str
    cores: int
    matmul: str
    precise_fp: bool
    kernel_hash: str
    findings: tuple[Finding, ...]
    programs: tuple[Program, ...]
    statements: tuple[str, ...] = ()
    compiled: str = ""
    doubt: str = ""
    executed: Executed = NUMPY
    imitate: str = ""
    kept_loads: tuple[KeptLoad, ...] = ()

    def instructions(self) -> dict[str, int]:
        """Instructions per engine, over all cores; loop bodies count once."""
        return dict(Counter(issued.engine.name for program in self.programs for issued in program.body.walk()))

    def dma_bytes(self) -> int:
        """Bytes that DMA instructions read, over all cores; loop bodies count once."""
        return sum(_dma_bytes(issued) for program in self.programs for issued in program.body.walk())

    def provenance(self) -> str:
        """One line that says where the numbers came from."""
        parts = [
            f"{self.mode} {self.executed}",
            f"target {self.target}",
            f"{self.cores} core(s)",
            f"matmul {self.matmul}",
            "verified",
        ]
        if not self.precise_fp:
            parts.append("low precision kept as float32")
        if self.imitate == "none" and self.mode == "compiled":
            parts.append("imitates no other compiler")
        if self.kernel_hash:
            parts.append(f"IR {self.kernel_hash[:12]}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return visible(f"<report of {self.kernel} on {self.target}: {self.mode} {self.executed}>")

    def __str__(self) -> str:
        """The report for people, in at most ten lines."""
        lines = [self._title(), *(f"  {name:12}  {text}" for name, text in self._rows(_FINDINGS))]
        return visible("\n".join(lines))

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._rows(len(self.findings)))

    def _title(self) -> str:
        return f"{self.kernel} on {self.target}, {self.cores} core{'s' if self.cores > 1 else ''}"

    def _rows(self, most: int) -> list[tuple[str, str]]:
        """What is worth a line, by name; of the findings the first ones."""
        counts = sorted(self.instructions().items(), key=lambda item: (-item[1], item[0]))
        rows = [
            ("executed", f"{self.mode} {self.executed}"),
            ("instructions", ", ".join(f"{engine} {count:,}" for engine, count in counts) or "none"),
            ("DMA", f"{self.dma_bytes():,} bytes"),
            ("matmul", self.matmul + ("" if self.precise_fp else "; low precision kept as float32")),
        ]
        if self.doubt:
            rows.append(("traced", f"in every call: {self.doubt}"))
        if self.statements:
            rows.append(("settings", "; ".join(self.statements)))
        if self.kept_loads:
            rows.append(("kept", f"{said(self.kept_loads)}: report.kept_loads"))
        rows += [("warning", f"[{finding.code}] {finding.message}") for finding in self.findings[:most]]
        if len(self.findings) > most:
            rows.append(("", f"and {len(self.findings) - most} more warnings: report.findings"))
        return [(name, " ".join(text.split())) for name, text in rows]

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "mode": self.mode,
            "cores": self.cores,
            "matmul": self.matmul,
            "executed": self.executed.to_json(),
            "precise_fp": self.precise_fp,
            "kernel_hash": self.kernel_hash,
            "imitate": self.imitate,
            "kept_loads": [load.to_json() for load in self.kept_loads],
            "instructions": self.instructions(),
            "dma_bytes": self.dma_bytes(),
            "statements": list(self.statements),
            "findings": [finding.to_json() for finding in self.findings],
        }


def _dma_bytes(issued: Issued) -> int:
    if Engine.dma not in issued.instruction.engines:
        return 0
    return sum(view.nbytes for name, view in issued.views() if issued.instruction.operands[name].reads)
