"""The time of a model by module, class, operation or kernel: who had how much of it.

The critical path of a core is as long as the program, and each of its intervals belongs to one instruction. So the time
of a kernel is its part of that path, and the times of all kernels, with what belongs to none, add up to the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nki.core.errors import UsageError
from nki.core.shown import shown
from nki.core.source import here
from nki.profiling.about import About
from nki.profiling.table import Table

BY = ("module", "class", "operation", "kernel")
"""What time can be divided by."""

NOBODY = -1
"""The kernel of instructions that no kernel of the model has."""

_MEMORY = ("hbm_read_bytes", "hbm_write_bytes")


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """A module, class, operation or kernel.

    Attributes:
        name: path of the module, or name of the others; "" for the model itself.
        kind: class of a module, else "".
        named: False for the row of what belongs to nobody.
        self_ns: its part of the program's time, without modules that it calls; all rows add up to `makespan_ns`.
        total_ns: with them.
        hbm_read_bytes, hbm_write_bytes: without modules that it calls; all rows add up to those of the program.
        total_hbm_read_bytes, total_hbm_write_bytes: with them.
        work_ns: with them, ns that each engine works for it, also while others are on the critical path.
        kernels: calls of kernels that compute something for it, with modules that it calls.
        instructions: that these run.
        bound_by: the engine with most of its time on the critical path; "" if it has none.
    """

    name: str
    kind: str
    named: bool
    self_ns: float
    total_ns: float
    hbm_read_bytes: float
    hbm_write_bytes: float
    total_hbm_read_bytes: float
    total_hbm_write_bytes: float
    work_ns: Mapping[str, float]
    kernels: int
    instructions: float
    bound_by: str

    def __str__(self) -> str:
        """As tables show it."""
        if not self.named:
            return f"({self.name})"
        return f"{self.name} ({self.kind})".strip() if self.kind else self.name


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The time of one core's program, divided.

    Attributes:
        by: one of `BY`.
        core: whose time it is.
        makespan_ns: all of it.
        rows: those with most time first.
    """

    by: str
    core: int
    makespan_ns: float
    rows: tuple[BreakdownRow, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "by": self.by,
            "core": self.core,
            "makespan_ns": self.makespan_ns,
            "rows": [
                {
                    "name": row.name if row.named else None,
                    "class": row.kind,
                    "self_ns": row.self_ns,
                    "total_ns": row.total_ns,
                    "share": row.self_ns / self.makespan_ns if self.makespan_ns else 0.0,
                    "total_share": row.total_ns / self.makespan_ns if self.makespan_ns else 0.0,
                    "hbm_read_bytes": row.hbm_read_bytes,
                    "hbm_write_bytes": row.hbm_write_bytes,
                    "total_hbm_read_bytes": row.total_hbm_read_bytes,
                    "total_hbm_write_bytes": row.total_hbm_write_bytes,
                    "work_ns": dict(row.work_ns),
                    "kernels": row.kernels,
                    "instructions": row.instructions,
                    "bound_by": row.bound_by,
                }
                for row in self.rows
            ],
        }


def breakdown(about: About, tables: Mapping[str, Table], by: str, core: int | None = None) -> Breakdown:
    """Divide the time of a model.

    Args:
        by: one of `BY`.
        core: whose; None for the slowest, which decides how long the model takes.

    Raises:
        UsageError: "profile.by" for another `by`, or a profile of what is no model.
    """
    if by not in BY:
        raise _misused(f"by={shown(by)}", f'write by="{BY[0]}"')
    if not len(tables["kernels"]):
        raise _misused(f"{about.kernel} is not known to be a model", "look at summary(), which shows its lines")
    slowest = max(range(about.cores), key=lambda number: about.totals[number]["makespan_ns"])
    core = slowest if core is None else core
    if not 0 <= core < about.cores:
        raise _misused(f"core={core} of {about.cores}", "cores count from 0; None is the slowest one")
    kernels = _kernels(tables, core)
    rows: dict[tuple[str, str, bool], _Row] = defaultdict(_Row)
    for part in _parts(tables, core, kernels):
        kernel = kernels[part.kernel]
        own, *around = part.keys(by)
        rows[own].own(part, kernel)
        for key in dict.fromkeys((own, *around)):
            rows[key].all(part, kernel)
    made = [row.made(key) for key, row in rows.items()]
    made.sort(key=lambda row: (not row.named, -row.total_ns, -row.self_ns, row.name))
    return Breakdown(by, core, about.totals[core]["makespan_ns"], tuple(made))


def _misused(what: str, fix: str) -> UsageError:
    return UsageError(
        "profile.by", what, rule=f"the time of a model is divided by {', '.join(BY)}", fix=fix, location=here()
    )


@dataclass(slots=True)
class _Kernel:
    """What one call of a kernel takes; ns by engine."""

    time: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    work: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    moved: list[float] = field(default_factory=lambda: [0.0, 0.0])
    instructions: float = 0.0


def _kernels(tables: Mapping[str, Table], core: int) -> dict[int, _Kernel]:
    """The kernels of a core by number."""
    found: dict[int, _Kernel] = defaultdict(_Kernel)
    for row in tables["instructions"].rows():
        if row["core"] == core:
            kernel = found[row["kernel"]]
            kernel.work[row["engine"]] += row["cost_ns"] * row["runs"]
            kernel.instructions += row["runs"]
            for place, name in enumerate(_MEMORY):
                kernel.moved[place] += row[name] * row["runs"]
    for (number, engine), ns in _times(tables, core).items():
        found[number].time[engine] += ns
    return found


_Owner = tuple[int, str]
"""A kernel and an engine."""


def _times(tables: Mapping[str, Table], core: int) -> dict[_Owner, float]:
    """The parts of the critical path by kernel and engine; later trips of a loop are divided as the first one is."""
    instructions = tables["instructions"]
    loops = [row for row in tables["loops"].rows() if row["core"] == core]
    pieces: list[tuple[float, float, dict[_Owner, float]]] = []
    for row in tables["path"].rows():
        if row["core"] != core:
            continue
        start, end, at = row["start_ns"], row["end_ns"], row["instruction"]
        owners = {(NOBODY, ""): 1.0}
        if at >= 0:
            owners = {(int(instructions["kernel"][at]), instructions["engine"][at]): 1.0}
        elif row["kind"] == "repeat":
            owners = _as_before(pieces, loops, start, end) or owners
        pieces.append((start, end, owners))
    found: dict[_Owner, float] = defaultdict(float)
    for start, end, owners in pieces:
        for owner, share in owners.items():
            found[owner] += share * (end - start)
    return found


def _as_before(
    pieces: Sequence[tuple[float, float, dict[_Owner, float]]],
    loops: Sequence[Mapping[str, Any]],
    start: float,
    end: float,
) -> dict[_Owner, float]:
    """Who has how much of a loop's first trip, whose further trips are from `start` to `end`."""
    near = 1e-6 * max(end, 1.0)
    first = [row["start_ns"] for row in loops if abs(row["start_ns"] + row["trip_ns"] - start) <= near]
    began = max(first, default=start)
    found: dict[_Owner, float] = defaultdict(float)
    for since, until, owners in reversed(pieces):
        if since < began - near:
            break
        for owner, share in owners.items():
            found[owner] += share * (until - since)
    total = sum(found.values())
    return {owner: ns / total for owner, ns in found.items()} if total else {}


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a kernel; `modules` are (path, class) from the innermost outwards."""

    kernel: int
    name: str
    modules: tuple[tuple[str, str], ...]
    operation: str
    share: float
    byte_shares: tuple[float, float]

    def added(self, moved: Sequence[float], kernel: _Kernel) -> list[float]:
        """Bytes from and to HBM, with those of this part."""
        return [a + share * b for a, share, b in zip(moved, self.byte_shares, kernel.moved, strict=True)]

    def keys(self, by: str) -> list[tuple[str, str, bool]]:
        """The row that the part belongs to, then rows whose modules called it."""
        if by == "kernel":
            return [(self.name or "no kernel", "", bool(self.name))]
        if by == "operation":
            return [(self.operation or "no operation", "", bool(self.operation))]
        if not self.modules:
            return [("no module", "", False)]
        if by == "class":
            return [(kind or path, "", True) for path, kind in self.modules]
        return [(path, kind, True) for path, kind in self.modules]


def _parts(tables: Mapping[str, Table], core: int, kernels: Mapping[int, _Kernel]) -> Iterator[_Part]:
    modules = list(tables["modules"].rows())
    for row in tables["kernels"].rows():
        if row["core"] == core:
            chain, module = [], row["module"]
            while module >= 0:
                chain.append((modules[module]["path"], modules[module]["class"]))
                module = modules[module]["parent"]
            moved = row["read_share"], row["write_share"]
            yield _Part(row["kernel"], row["name"], tuple(chain), row["operation"], row["share"], moved)
    if NOBODY in kernels:
        yield _Part(NOBODY, "", (), "", 1.0, (1.0, 1.0))


class _Row:
    """A row that is being added up."""

    def __init__(self) -> None:
        self._self = self._total = 0.0
        self._moved, self._all_moved = [0.0, 0.0], [0.0, 0.0]
        self._time: dict[str, float] = defaultdict(float)
        self._work: dict[str, float] = defaultdict(float)
        self._kernels: dict[int, float] = {}

    def own(self, part: _Part, kernel: _Kernel) -> None:
        """Add what belongs to nobody further in."""
        self._self += part.share * sum(kernel.time.values())
        self._moved = part.added(self._moved, kernel)

    def all(self, part: _Part, kernel: _Kernel) -> None:
        """Add what belongs to it or to a module that it called."""
        for engine, ns in kernel.time.items():
            self._total += part.share * ns
            self._time[engine] += part.share * ns
        for engine, ns in kernel.work.items():
            self._work[engine] += part.share * ns
        self._all_moved = part.added(self._all_moved, kernel)
        if part.kernel != NOBODY:
            self._kernels[part.kernel] = kernel.instructions

    def made(self, key: tuple[str, str, bool]) -> BreakdownRow:
        """The row of a name and a class."""
        busiest = max(self._time, key=self._time.__getitem__, default="")
        name, kind, named = key
        return BreakdownRow(
            name,
            kind,
            named,
            self_ns=self._self,
            total_ns=self._total,
            hbm_read_bytes=self._moved[0],
            hbm_write_bytes=self._moved[1],
            total_hbm_read_bytes=self._all_moved[0],
            total_hbm_write_bytes=self._all_moved[1],
            work_ns={engine: ns for engine, ns in sorted(self._work.items()) if ns},
            kernels=len(self._kernels),
            instructions=sum(self._kernels.values()),
            bound_by=busiest if self._time[busiest] else "",
        )
