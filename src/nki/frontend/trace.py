"""Tracing: run the kernel's Python once per core, take every instruction, and perhaps execute it at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from nki.compiler import CompileConfig
from nki.core.dtypes import DType
from nki.core.errors import FrontendError, LaunchError, NkiError, TensorError, VerificationError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import Location, Locator
from nki.core.tensor import Buffer, MemoryRegion, Storage, View, whole
from nki.frontend.loops.regions import BodyPass, LoopRegion, Regions
from nki.frontend.loops.spellings import Conditions, trips
from nki.frontend.python_errors import spelled
from nki.options import Options
from nki.sim.machine import Machine
from nki.sim.memory import LiveStorage
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.spec.rule import Finding, error_of, finding_of, foretold
from nki.spec.schedule import Edge, check_complete, dependencies, fences, positions
from nki.spec.signature import Signature
from nki.spec.sink import with_sink
from nki.target.model import Target

Claim = Callable[[Buffer], LiveStorage]
Spell = Callable[[Exception, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Exception]
"""See `nki.frontend.protocol.FrontEnd.spell`."""


class Tracer:
    """The sink of one core: records a program and, in eager mode, executes each instruction as it comes.

    Attributes:
        program: what was recorded.
        findings: warnings, and errors if `collect` is set.
        doubts: what the kernel read that may be another thing the next time.
        eager: whether values are concrete.
        waiting: issues an instruction that comes before whatever follows; None if there is none.
        retained: where new storages are noted, for who issues an instruction once more; None if nobody does.
    """

    _home: BodyPass | None = None

    def __init__(
        self,
        name: str,
        target: Target,
        options: Options,
        *,
        core: int = 0,
        cores: int = 1,
        grid: bool = False,
        machine: Machine | None = None,
        claim: Claim | None = None,
        collect: bool = False,
    ) -> None:
        self.target = target
        self.options = options
        self.core = core
        self.cores = cores
        self.grid = grid
        self.eager = machine is not None
        self.retained: list[Storage] | None = None
        self.waiting: Callable[[], None] | None = None
        self.trace: Hashable = object()
        self.locator = Locator(run_body.__code__)
        self.program = Program(name, target.name, core, cores)
        self.findings: list[Finding] = []
        self._machine = machine
        self._claim = claim
        self._collect = collect
        self._regions = Regions(self.program.body, machine)
        self._conditions = Conditions(self._regions, self.while_region, self.locator.capture)
        self._ids = itertools.count()
        self._numbers = {region.name: itertools.count() for region in MemoryRegion}
        self._register_ids = itertools.count()
        self._constants: dict[Hashable, Storage] = {}
        self._order: Hashable = None
        self.no_reorder_depth = 0
        self.ordered: list[list[Issued]] = []
        self.prepared: Issued | None = None
        self.config = CompileConfig()
        self.config_override = False
        self._edges: list[Edge] = []
        self._refused: Finding | None = None
        self.doubts: list[str] = []

    # --- what instructions and the language call

    def issue(self, issued: Issued, signature: Signature | None = None) -> None:
        if self.waiting is not None:
            self.waiting()
        machine = self._regions.issue(issued)
        if self.no_reorder_depth:
            self.ordered[-1].append(issued)
        if machine is None:
            return
        if signature is None:
            machine.run(issued)
        else:
            machine.run_known(issued, signature)

    def report(self, finding: Finding) -> None:
        if finding.severity == "error" and not self._collect:
            self._refused = finding
            raise error_of(finding, VerificationError)
        if finding not in self.findings:
            self.findings.append(finding)

    def exceeded(self, error: TensorError) -> None:
        """Warn in eager mode, whose tensors have bytes of their own; collect or raise where a kernel is compiled."""
        disabled = error.code in self.options.disabled_rules
        if not self.eager and (disabled or not self._collect):
            raise error
        if not disabled:
            where = self.locator.capture()
            self.report(foretold(error, where) if self.eager else finding_of(error, "error", where))

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        region: MemoryRegion,
        name: str,
        address: tuple[int, int] | None,
        role: str = "temporary",
    ) -> Storage:
        where = self.locator.capture()
        current = self._home or self._regions.current
        if current.recording:
            buffer = self._buffer(shape, dtype, region, name, role, address, where)
            current.block.buffers.append(buffer)
        else:
            buffer = current.buffer((shape, dtype, region, address, where), where)
        if self._machine is None:
            return Storage(buffer)
        if region is MemoryRegion.shared_hbm and self._claim is not None and not self._regions.silent:
            return self._claim(buffer)
        storage = self._machine.memory.allocate(buffer)
        if self.retained is not None:
            self.retained.append(storage)
        return storage

    def literal(self, shape: tuple[int, ...], dtype: DType, data: bytes) -> Storage:
        buffer = self._buffer(shape, dtype, MemoryRegion.shared_hbm, "", "constant", None, data=data)
        self.program.body.buffers.append(buffer)
        if self._machine is None:
            return Storage(buffer)
        if self._claim is not None:
            return self._claim(buffer)
        return self._machine.memory.allocate(buffer)

    def constant(self, key: Hashable) -> Storage | None:
        return self._constants.get(key)

    def keep_constant(self, key: Hashable, storage: Storage) -> None:
        if self._regions.innermost is None:
            self._constants[key] = storage

    def unfollowed(self, reason: str) -> None:
        self.doubts.append(reason)

    def register(self) -> VirtualRegister:
        return self._regions.current.register(
            lambda: VirtualRegister(next(self._register_ids), trace=self.trace, truth=self._conditions.truth)
        )

    def for_loop(
        self,
        lower: int | VirtualRegister,
        upper: int | VirtualRegister,
        step: int,
        body: Callable[[VirtualRegister], None],
    ) -> None:
        region = self.for_region(lower, upper, step)
        while region.next_trip():
            body(region.loop.index)  # type: ignore[union-attr]

    def while_loop(self, condition: VirtualRegister, body: Callable[[VirtualRegister], VirtualRegister]) -> None:
        region = self.while_region(condition)
        while region.next_trip():
            body(condition)

    def for_statement(
        self, lower: int | VirtualRegister, upper: int | VirtualRegister, step: int, frame: FrameType
    ) -> Iterator[VirtualRegister]:
        return trips(lambda: self.for_region(lower, upper, step), frame, self.locator.capture())

    def while_region(self, condition: VirtualRegister) -> LoopRegion:
        """A ``while`` loop on the device, before its first trip."""
        self._begin_loop()
        return self._regions.open(WhileLoop(condition, Block(), self.locator.capture()))

    def for_region(self, lower: int | VirtualRegister, upper: int | VirtualRegister, step: int) -> LoopRegion:
        """A ``for`` loop on the device, before its first trip; nobody else writes its index."""
        self._begin_loop()
        index = self.register()
        index.frozen = True
        return self._regions.open(ForLoop(lower, upper, step, index, Block(), self.locator.capture()))

    @property
    def in_device_loop(self) -> bool:
        """Whether instructions go to the body of a loop that the device runs."""
        return self._regions.current.block is not self.program.body

    @property
    def body(self) -> BodyPass:
        """The pass that takes what is issued: over the body of the innermost loop, or of the program."""
        return self._regions.current

    def runs(self, body: BodyPass) -> bool:
        """Whether a pass over a body is not over."""
        return self._regions.runs(body)

    @contextmanager
    def allocating_in(self, body: BodyPass) -> Iterator[None]:
        """Allocate in a body around the running one: for a tensor of it that gets its memory when it is first used."""
        self._home, before = body, self._home
        try:
            yield
        finally:
            self._home = before

    def depend(self, consumer: Issued, producers: Sequence[Issued]) -> None:
        current = self._regions.current
        if current.recording:  # a later pass over a loop's body repeats the edges of the first
            self._edges += dependencies(current.block, consumer, producers)

    def tap(self, name: str, view: View) -> None:
        machine = self._regions.machine
        if machine is not None:
            machine.tap(name, view, self.locator.capture())

    def buffers(self) -> list[Buffer]:
        return [*self.program.inputs, *self.program.body.all_buffers()]

    # --- what the driver calls

    def input(self, shape: tuple[int, ...], dtype: DType, name: str, storage: Callable[[Buffer], Storage]) -> NkiTensor:
        """A tensor for an array argument."""
        region = MemoryRegion.shared_hbm if self.cores > 1 else MemoryRegion.private_hbm
        buffer = self._buffer(shape, dtype, region, name, "input", None, self.program.location)
        self.program.inputs.append(buffer)
        return NkiTensor.of(whole(buffer), storage(buffer))

    def run(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], spell: Spell = spelled) -> Any:
        """Run the kernel's body with this sink; `spell` gives what is raised for an error of the body."""
        return with_sink(self, lambda: run_body(function, args, kwargs, spell))

    def finish(self, result: Any) -> Any:
        """Check what the kernel returns and note its views as outputs; returns the same tree with views.

        Nothing is executed afterwards. Memory is let go of here, because registers know their trace and it knows them:
        it would stay until the garbage collector comes, and the next call would take other memory.
        """
        if self._refused is not None:
            self.report(_swallowed(self._refused))
        self._regions.check_closed()
        check_complete(self.prepared)
        self.program.edges = positions(self.program, self._edges)
        self.program.fences = fences(self.program, self.ordered)
        outputs = _outputs(result, self)
        self._machine = self._claim = None
        self._regions.stop()
        return outputs

    def check_scope(self, view: View) -> None:
        """Raise if a returned view belongs to a loop that has ended."""
        self._regions.check_scope(view, "the result")

    def output_storages(self, result: Any) -> list[LiveStorage]:
        """The live storages of the returned tensors, eager mode."""
        return [tensor.storage for tensor in _tensors(result)]

    # --- helpers

    def _buffer(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        region: MemoryRegion,
        name: str,
        role: str,
        address: tuple[int, int] | None,
        location: Location | None = None,
        data: bytes | None = None,
    ) -> Buffer:
        kind = region._name_  # what `name` looks up; the same text as `value`
        return Buffer(
            id=next(self._ids),
            name=name or f"{kind}{next(self._numbers[kind])}",
            region=region,
            shape=shape,
            dtype=dtype,
            address=address,
            role=role,
            location=self.locator.capture() if location is None else location,
            trace=self.trace,
            data=data,
        )

    def _begin_loop(self) -> None:
        if self.waiting is not None:
            self.waiting()
        if self.no_reorder_depth:
            raise FrontendError(
                "loop.no-reorder",
                "a device loop inside nl.no_reorder",
                rule="device loops are not supported inside no_reorder",
                source="nki/api/nki/language/__init__.py no_reorder",
                fix="put no_reorder into the body of the loop, or unroll with range",
            )


def run_body(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], spell: Spell) -> Any:
    """The frame at which locations stop: everything further out is the caller's."""
    try:
        return function(*args, **kwargs)
    except Exception as problem:
        told = spell(problem, function, args, kwargs)
        if told is problem:
            raise
        raise told from None


def _swallowed(refused: Finding) -> Finding:
    """The warning of a kernel that went on without an instruction that was refused."""
    return Finding(
        "kernel.swallowed",
        "warning",
        f"the kernel caught the error {refused.code} and goes on without the instruction: {refused.message}",
        "an instruction that breaks a rule is not part of the kernel",
        "",
        f"{refused.fix}; and catch no error of NKI in a kernel, or NkiError alone where another instruction follows",
        refused.location,
        {"error": refused.code},
    )


def _outputs(result: Any, tracer: Tracer) -> Any:
    match result:
        case None:
            return None
        case NkiTensor():
            return _output(result, tracer)
        case tuple() | list():
            return (
                type(result)(_outputs(item, tracer) for item in result)
                if not hasattr(result, "_fields")
                else type(result)(*(_outputs(item, tracer) for item in result))
            )
        case dict():
            return {key: _outputs(item, tracer) for key, item in result.items()}
    raise LaunchError(
        "return.kind",
        f"the kernel returns {shown(result)}",
        rule="a kernel returns tensors in HBM, or tuples of them",
        fix="return an nl.shared_hbm tensor",
        location=tracer.program.location,
    )


def _output(tensor: NkiTensor, tracer: Tracer) -> View:
    view = tensor.view_record
    tracer.check_scope(view)
    if view.buffer.trace is not tracer.trace:
        raise LaunchError(
            "tensor.escaped",
            f"the kernel returns tensor {tensor.name!r} of another kernel call",
            fix="return a tensor of this call",
        )
    if view.on_chip:
        raise LaunchError(
            "return.region",
            f"the kernel returns {view.buffer.name}, {view.describe()}",
            rule="kernel outputs are in shared_hbm",
            source="release-notes/components/nki.rst 0.3.0",
            fix="allocate an nl.shared_hbm tensor, store into it with nisa.dma_copy, and return it",
            location=view.buffer.location,
        )
    if view.region is MemoryRegion.private_hbm and view.buffer.role != "input":
        tracer.report(_private(view.buffer))
    if view.dynamic is not None:
        raise LaunchError("return.dynamic", f"output {view.buffer.name} has a dynamic address", fix="copy it first")
    tracer.program.outputs.append(view)
    return view


def _private(buffer: Buffer) -> Finding:
    return Finding(
        "return.private-hbm",
        "warning",
        f"output {buffer.name} is in private_hbm",
        "kernel outputs are in shared_hbm",
        "release-notes/components/nki.rst 0.3.0",
        "allocate it with buffer=nl.shared_hbm",
        buffer.location,
        {},
    )


def _tensors(result: Any) -> list[Any]:
    match result:
        case NkiTensor():
            return [result]
        case tuple() | list():
            return [tensor for item in result for tensor in _tensors(item)]
        case dict():
            return [tensor for item in result.values() for tensor in _tensors(item)]
    return []


def attach(error: NkiError, location: Location) -> None:
    """Give an error the place where the kernel is defined if it has none."""
    if not error.location.frames:
        error.location = location
