"""What became of a model: kernels, instructions, device memory, replaced patterns and what runs on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, TypeVar

from nki.core.html import html_table
from nki.graph.ir import Function, Group, Op
from nki.graph.link.link import Linked
from nki.graph.link.plan import MemoryPlan
from nki.graph.link.steps import KernelRun, ModelSteps, walk
from nki.graph.partition.divide import Division
from nki.graph.passes.context import GraphContext, Near, Replaced
from nki.store.artifact.metadata import refused


@dataclass(frozen=True, slots=True)
class GraphReport:
    """What one compilation came to.

    Attributes:
        model, target: what was compiled for what.
        operations: of the model, after its functions were inlined.
        kernels: how often the program runs a kernel of each kind, copies included; "call" are the user's own.
        distinct: kernels that were compiled or known, without copies.
        origins: how many of them were "compiled", or came from "memory" or "disk".
        instructions: of the program, those of loops once.
        kernels_before, bytes_before: kernels and bytes between them and device memory with one kernel per operation.
        kernels_after, bytes_after: the same after fusion.
        argument_bytes, constant_bytes, output_bytes: of device memory.
        temporary_bytes, temporary_bytes_before: of values in between with shared memory, and if each had its own.
        waits: of queues for each other.
        cores: that run the model.
        split: kernels of which both cores run a half.
        meetings: of the cores.
        unsplit: (kind of kernel or step, why one core runs it, how often).
        replaced: what kernels of patterns compute, and what it takes with them and without.
        near: what they nearly compute, and why they do not.
        fallbacks: (operation, line) of what runs on the host; only where the caller asked for it.
        seconds: of each stage.
    """

    model: str
    target: str
    operations: int = 0
    kernels: Mapping[str, int] = field(default_factory=dict)
    distinct: int = 0
    origins: Mapping[str, int] = field(default_factory=dict)
    instructions: int = 0
    kernels_before: int = 0
    kernels_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    argument_bytes: int = 0
    constant_bytes: int = 0
    output_bytes: int = 0
    temporary_bytes: int = 0
    temporary_bytes_before: int = 0
    waits: int = 0
    cores: int = 1
    split: int = 0
    meetings: int = 0
    unsplit: Sequence[tuple[str, str, int]] = ()
    replaced: Sequence[Replaced] = ()
    near: Sequence[Near] = ()
    fallbacks: Sequence[tuple[str, str]] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        found = asdict(self)
        found["replaced"] = [each._asdict() for each in self.replaced]
        found["near"] = [each._asdict() for each in self.near]
        found["unsplit"] = [list(each) for each in self.unsplit]
        found["fallbacks"] = [list(pair) for pair in self.fallbacks]
        return found

    def lasting(self) -> dict[str, Any]:
        """What is the same whenever and wherever the model is compiled, for its file."""
        return {name: value for name, value in self.to_json().items() if name not in ("seconds", "origins")}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> GraphReport:
        """What `lasting` or `to_json` made. Raises ArtifactError "artifact.model" for anything else."""
        known = {each.name for each in fields(GraphReport)}
        lists = {name: found.get(name) for name in ("replaced", "fallbacks", "unsplit")} | {
            "near": found.get("near", [])  # files of earlier versions have none
        }
        whole = {"model", "target"} <= found.keys() <= known
        try:
            if not whole or not all(isinstance(value, list) for value in lists.values()):
                raise ValueError(", ".join(map(str, found)))
            tuples = {name: tuple(_MADE[name](each) for each in value or ()) for name, value in lists.items()}
        except (TypeError, ValueError) as error:
            raise refused("artifact.model", f"a report with {error}"[:200], "it is that of a model") from error
        return GraphReport(**{**found, **tuples})

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kernels.items()))
        lines = [
            f"{self.model} for {self.target}: {self.operations} operations, {sum(self.kernels.values())} kernel calls "
            f"({kinds}), {self.distinct} distinct, {self.instructions} instructions, {self.waits} waits",
            *self._fusion(),
            f"  device memory: arguments {self.argument_bytes:,}, constants {self.constant_bytes:,}, results "
            f"{self.output_bytes:,}, temporaries {self.temporary_bytes_before:,} -> {self.temporary_bytes:,} bytes",
        ]
        if self.cores > 1:
            lines.append(f"  {self.cores} cores: {self.split} kernels are cut in two, {self.meetings} meetings")
            lines += [f"    {count} {kind} on one core: {why}" for kind, why, count in self.unsplit]
        lines += [f"  {_counted(each, count)}: its kernel{_gain(each)}" for each, count in _alike(self.replaced)]
        lines += [f"  {_counted(each, count)}: nearly, but {each.reason}" for each, count in _alike(self.near)]
        lines += [f"  {op} at {where}: on the host" for op, where in self.fallbacks]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *more = str(self).splitlines()
        title, _, counts = first.partition(": ")
        rows = [line.strip().partition(": ")[::2] for line in (counts and f"program: {counts}", *more) if line]
        return html_table(title, rows)

    def _fusion(self) -> list[str]:
        """What fusion did; nothing is known of it where the groups were read from a file."""
        if not self.kernels_before:
            return []
        return [
            f"  fusion: {self.kernels_before} -> {self.kernels_after} kernels, {self.bytes_before:,} -> "
            f"{self.bytes_after:,} bytes from and to device memory"
        ]


Found = TypeVar("Found", Replaced, Near)


def _alike(found: Sequence[Found]) -> list[tuple[Found, int]]:
    """What is equal in several layers of a model, once, and how often."""
    return list(Counter(found).items())


def _counted(found: Replaced | Near, count: int) -> str:
    return f"{found.pattern} at {found.where}" + (f", {count} times" if count > 1 else "")


def _gain(found: Replaced) -> str:
    if found.ns is None:
        return ""
    own = "which the graph compiler cannot compute" if found.own_ns is None else f"{found.own_ns / 1000:.2f} µs without"
    return f", {found.ns / 1000:.2f} µs, {own}"


def _of_json(kind: type[Found], each: Any) -> Found:
    """A record that was written by name, or by position as in files of earlier versions."""
    return kind(**each) if isinstance(each, Mapping) else kind(*each)


_MADE: Mapping[str, Callable[[Any], Any]] = {
    "replaced": partial(_of_json, Replaced),
    "near": partial(_of_json, Near),
    "fallbacks": tuple,
    "unsplit": tuple,
}
"""What makes records of what JSON has, by the name of the list."""


def report_of(
    model: str,
    context: GraphContext,
    function: Function,
    steps: ModelSteps,
    plan: MemoryPlan,
    linked: Linked,
    seconds: Mapping[str, float],
    division: Division | None = None,
) -> GraphReport:
    """The report of a compilation that ended."""
    unsplit = () if division is None else tuple((*kind, count) for kind, count in sorted(division.reasons.items()))
    runs = [step for step in walk(steps.steps) if isinstance(step, KernelRun)]
    kernels = Counter("call" if run.reference is not None else run.kind for run in runs)
    kernels["copy"] = linked.copies
    traffic = context.traffic
    return GraphReport(
        model=model,
        target=context.target.name,
        operations=_operations(function.body),
        kernels={kind: count for kind, count in kernels.items() if count},
        distinct=len(steps.kernels),
        origins=dict(Counter(kernel.origin for kernel in steps.kernels.values())),
        instructions=sum(1 for program in linked.programs for _ in program.body.walk()),
        kernels_before=traffic.kernels_before,
        kernels_after=traffic.kernels_after,
        bytes_before=traffic.bytes_before,
        bytes_after=traffic.bytes_after,
        argument_bytes=plan.nbytes("argument"),
        constant_bytes=plan.nbytes("constant"),
        output_bytes=plan.nbytes("output"),
        temporary_bytes=plan.nbytes("temporary"),
        temporary_bytes_before=plan.bytes_without,
        waits=linked.waits,
        cores=len(linked.programs),
        split=0 if division is None else division.split,
        meetings=linked.meetings,
        unsplit=unsplit,
        replaced=tuple(context.replaced),
        near=tuple(context.near),
        seconds=dict(seconds),
    )


def _operations(items: Sequence[Op | Group]) -> int:
    """Operations in groups and outside of them; those in loops and branches instead of these."""
    count = 0
    for item in items:
        for op in item.ops if isinstance(item, Group) else (item,):
            nested = [region for region in op.regions if any(isinstance(inner, Group) for inner in region.ops)]
            count += sum(_operations(region.ops) for region in nested) if nested else 1
    return count
