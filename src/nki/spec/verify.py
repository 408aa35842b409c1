"""The verifier: what every operand must satisfy, then the rules of the declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nki.core.source import Location
from nki.core.tensor import MemoryRegion, View
from nki.spec.engine import engine as Engine
from nki.spec.operand import Operand
from nki.spec.rule import Finding, Rule
from nki.target.load import load_target, target_names
from nki.target.model import Target

if TYPE_CHECKING:
    from nki.spec.instruction import Instruction
    from nki.spec.program import Issued

_ARCH = "nki/guides/architecture/trainium_inferentia2_arch.rst"


def verify(issued: Issued, target: Target, disabled: frozenset[str] = frozenset()) -> list[Finding]:
    """All broken rules of one instruction on a target, in order; empty if it is legal."""
    instruction, arguments, location, engine = issued
    findings: list[Finding] = []
    if not instruction.exists_on(target) or engine not in instruction.engines:
        findings.extend(_available(instruction, engine, target, location))
    if not findings:
        for name, view in issued.views():
            operand = instruction.operands[name]
            packed = view.dtype.is_packed and operand.dtypes is None and not instruction.moves_bits
            if packed or not _legal(operand, view, engine, target):
                findings.extend(_operand(issued, name, operand, view, target))
    if not findings:
        for rule in instruction.rules:
            if not rule.holds(arguments, target):
                findings.append(_broken(instruction, rule, arguments, target, location))
    if disabled and findings:
        findings = [f for f in findings if f.code not in disabled and f.code.rpartition(".")[2] not in disabled]
    return findings


def _legal(operand: Operand, view: View, engine: Engine, target: Target) -> bool:
    """The quick answer for the common case; False means: look closely (`_operand` has the last word)."""
    buffer, shape = view.buffer, view.shape
    if buffer.region not in operand.regions or (operand.dtypes is not None and view.dtype not in operand.dtypes):
        return False
    if not buffer.on_chip:
        return True
    if engine is Engine.gpsimd and buffer.region is MemoryRegion.psum:
        return False
    if operand.kind == "column" and view.free_size != 1:
        return False
    if not operand.engine_access:
        return True
    starts_at_zero = buffer.address is None and view.offset < view.strides[0]
    return shape[0] <= target.partitions and starts_at_zero and len(shape) - 1 <= target.access.max_free_dims


def _available(instruction: Instruction[Any], engine: Engine, target: Target, at: Location) -> Iterator[Finding]:
    if not instruction.exists_on(target):
        having = [name for name in target_names() if instruction.exists_on(load_target(name))]
        yield _finding(
            "instruction.unavailable",
            f"{instruction.label} does not exist on {target.name}",
            f"{instruction.label} exists on {', '.join(having) or 'no target'}",
            instruction.source,
            f"set NEURON_PLATFORM_TARGET_OVERRIDE={having[-1]}" if having else "use other instructions",
            at,
            target=target.name,
        )
    elif engine not in instruction.engines:
        names = ", ".join(e.name for e in instruction.engines)
        yield _finding(
            "instruction.engine",
            f"{instruction.label} cannot run on the {engine.name} engine",
            f"{instruction.label} runs on {names}",
            instruction.source,
            "omit engine",
            at,
            engine=engine.name,
        )


def _operand(issued: Issued, name: str, operand: Operand, view: View, target: Target) -> Iterator[Finding]:
    label = f"{name} of {issued.instruction.label}"
    if view.buffer.region not in operand.regions:
        yield _misplaced(issued, label, operand, view)
        return
    yield from _dtypes(issued, label, operand, view)
    if view.buffer.on_chip:
        yield from _on_chip(issued, label, operand, view, target)


def _misplaced(issued: Issued, label: str, operand: Operand, view: View) -> Finding:
    region, allowed = view.buffer.region, " or ".join(str(r) for r in operand.regions)
    return _finding(
        "operand.region",
        f"{label} is {view.describe()}",
        f"{label} must be in {allowed}",
        issued.instruction.source,
        _write_fix(region, operand.regions) if operand.writes else _read_fix(view, operand),
        issued.location,
        region=region,
    )


def _dtypes(issued: Issued, label: str, operand: Operand, view: View) -> Iterator[Finding]:
    instruction, at = issued.instruction, issued.location
    if operand.dtypes is not None and view.dtype not in operand.dtypes:
        allowed = ", ".join(str(d) for d in operand.dtypes)
        only = operand.dtypes[0]
        yield _finding(
            "operand.dtype",
            f"{label} is {view.describe()}",
            f"{label} must be {'one of ' if len(operand.dtypes) > 1 else ''}{allowed}",
            instruction.source,
            f"write to a tile of nl.{only}, and cast that with nisa.tensor_copy"
            if operand.writes
            else f"cast it with nisa.tensor_copy{', for example' if len(operand.dtypes) > 1 else ''} to nl.{only}",
            at,
            dtype=view.dtype,
        )
    if view.dtype.is_packed and operand.dtypes is None and not instruction.moves_bits:
        yield _finding(
            "operand.packed",
            f"{label} is {view.describe()}",
            "packed x4 values are moved, quantized and multiplied by the MX instructions; arithmetic cannot read them",
            "nki/api/nki.api.shared.rst",
            "view it as integers to move bits, or keep an unpacked copy",
            at,
            dtype=view.dtype,
        )


def _on_chip(issued: Issued, label: str, operand: Operand, view: View, target: Target) -> Iterator[Finding]:
    instruction, arguments, at, engine = issued
    if view.buffer.region is MemoryRegion.psum and engine is Engine.gpsimd:
        yield _finding(
            "operand.gpsimd-psum",
            f"{label} is {view.describe()}, and the instruction runs on GpSimd",
            "the GpSimd engine cannot access PSUM",
            _ARCH,
            ("write to an SBUF tile, and copy that to PSUM" if operand.writes else "copy it to SBUF first")
            + ("" if _needs_gpsimd(instruction, arguments, target) else ", or omit engine"),
            at,
        )
    if operand.engine_access:
        yield from _engine_access(label, view, target, at)
    if operand.kind == "column" and view.free_size != 1:
        yield _finding(
            "operand.column",
            f"{label} is {view.describe()}",
            f"{label} holds one element per partition",
            instruction.source,
            "slice one column: tensor[:, 0:1]",
            at,
            free_size=view.free_size,
        )


def _engine_access(label: str, view: View, target: Target, at: Location) -> Iterable[Finding]:
    partitions, dims = view.shape[0], len(view.shape)
    if partitions > target.partitions:
        yield _finding(
            "operand.partitions",
            f"{label} spans {partitions} partitions",
            f"an instruction spans at most {target.partitions} partitions",
            _ARCH,
            f"tile dimension 0 in pieces of {target.partitions}",
            at,
            partitions=partitions,
        )
        return
    start = view.start_partition
    if start and start not in target.access.start_partitions(partitions):
        legal = ", ".join(str(s) for s in target.access.start_partitions(partitions))
        yield _finding(
            "operand.start-partition",
            f"{label} starts at partition {start} and spans {partitions}",
            f"{partitions} partition{'' if partitions == 1 else 's'} may start at {legal}",
            _ARCH,
            f"start at a multiple of {target.quadrant} that is listed, or copy with a DMA first",
            at,
            start=start,
            partitions=partitions,
        )
    if dims - 1 > target.access.max_free_dims and merged_dims(view) > target.access.max_free_dims:
        yield _finding(
            "operand.rank",
            f"{label} has {dims - 1} free dimensions that do not merge",
            f"an access has at most {target.access.max_free_dims} free dimensions",
            "nki/deep-dives/nki-aps.rst",
            "copy it to a tensor with fewer dimensions",
            at,
            dims=dims,
        )


def merged_dims(view: View) -> int:
    """Free dimensions that remain when contiguous neighbours are merged and size 1 is dropped."""
    dims = [(n, s) for n, s in zip(view.shape[1:], view.strides[1:], strict=True) if n != 1]
    return len(dims) - sum(1 for (_, outer), (n, inner) in pairwise(dims) if outer == n * inner)


def _needs_gpsimd(instruction: Instruction[Any], arguments: Any, target: Target) -> bool:
    """Whether these operands run on GpSimd even if no engine is asked for."""
    free = arguments._replace(engine=Engine.unknown) if "engine" in instruction.operands else arguments
    return instruction.engine_for(free, target) is Engine.gpsimd


def _write_fix(region: MemoryRegion, allowed: tuple[MemoryRegion, ...]) -> str:
    """A result goes where the instruction can write, and from there to where it was wanted."""
    if region is MemoryRegion.sbuf:
        return "allocate it with buffer=nl.psum" if MemoryRegion.psum in allowed else "allocate it in HBM"
    if MemoryRegion.sbuf in allowed:
        move = "nisa.dma_copy" if region.is_hbm else "nisa.tensor_copy"
        return f"write to an SBUF tile, then move that to {region} with {move}"
    return f"write to a {allowed[0]} tensor, and copy that to {region}"


def _read_fix(view: View, operand: Operand) -> str:
    """A single element that is passed where a number could be is mostly meant as a number."""
    name = view.buffer.name
    if operand.kind == "column" and view.size == 1 and view.region.is_hbm:
        return (
            f"call the kernel with a Python number ({name}.item(), or a static argument of jax.jit), or load it into "
            f"each of P partitions: nisa.dma_copy(dst=tile, src={name}.ap(pattern=[[0, P], [1, 1]])), tile is (P, 1)"
        )
    return _region_fix(view.buffer.region, operand.regions)


def _region_fix(region: MemoryRegion, allowed: tuple[MemoryRegion, ...]) -> str:
    if region.is_hbm:
        return "load it into SBUF with nisa.dma_copy first"
    if region is MemoryRegion.psum:
        return "copy it to SBUF with nisa.tensor_copy first"
    if MemoryRegion.psum in allowed:
        return "allocate it with buffer=nl.psum"
    return "move it with nisa.dma_copy"


def _broken(instruction: Instruction[Any], rule: Rule, arguments: Any, target: Target, at: Location) -> Finding:
    sentence = rule.sentence.format(t=target)
    actual = rule.actual(arguments, target) if rule.actual else _operand_summary(instruction, arguments)
    return Finding(
        f"{instruction.name}.{rule.code}",
        rule.severity,
        f"{instruction.label}: {actual}",
        sentence,
        rule.source,
        rule.remedy(arguments, target) if rule.remedy else rule.fix.format(t=target),
        at,
        {"target": target.name},
    )


def _operand_summary(instruction: Instruction[Any], arguments: Any) -> str:
    parts = []
    for name in instruction.operands:
        value = getattr(arguments, name)
        if isinstance(value, View):
            parts.append(f"{name} is {value.describe()}")
    return ", ".join(parts)


def _finding(code: str, message: str, rule: str, source: str, fix: str, at: Location, **facts: Any) -> Finding:
    return Finding(code, "error", message, rule, source, fix, at, facts)
