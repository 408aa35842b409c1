"""Whether a kernel and what became of it give equal bits: by their instructions, else by running both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.kernel import Beta1Kernel
from nki.beta1.tracing.grid import cores_of
from nki.core.errors import NkiError
from nki.core.tensor import Buffer, MemoryRegion
from nki.driver.call import call as run
from nki.driver.launch import Launch, trace_results
from nki.options import Options
from nki.passes import accumulate_flags
from nki.passes.context import Context
from nki.spec.program import Block, Issued, Program
from nki.target.model import Target
from nki.tools.migrate.calls import MADE_UP, Call
from nki.tools.migrate.operators import today_of

EXECUTED_MOST = 200_000_000
"""Elements that instructions may write for both kernels to be run; above, only equal instructions are a proof."""


TOO_LARGE = "other instructions, and too many of them to run here"


@dataclass(frozen=True)
class Proof:
    """What was found out about a kernel.

    Attributes:
        equal: whether the bits are the same; None if that is not known.
        how: "same instructions", "same results", or why it is not known.
        errors: what ``nki check`` refuses in the new kernel.
    """

    equal: bool | None
    how: str
    errors: tuple[str, ...] = ()


def launch_of(kernel: Any, call: Call) -> Any:
    """A kernel as it is called."""
    cores = cores_of(call.grid) if call.grid else 1
    launch = replace(kernel._launch, lnc=cores if cores > 1 else None)
    return replace(launch, front_end=Beta1FrontEnd(call.grid)) if isinstance(kernel, Beta1Kernel) else launch


def prove(old: Any, new: Any, call: Call, grid: dict[str, Any], target: Target, options: Options) -> Proof:
    """Compare a kernel with the rewritten one for one call."""
    try:
        before, _ = trace_results(launch_of(old, call), call.args, call.kwargs, target, options, collect=True)
        refused = next((f.message for tracer in before for f in tracer.findings if f.severity == "error"), "")
    except Exception as problem:  # noqa: BLE001 - whatever the old kernel does
        before, refused = [], f"{type(problem).__name__}: {problem}".splitlines()[0]
    if refused and isinstance(old, Beta1Kernel):
        return Proof(None, f"the old one does not run: {refused}")
    cores = cores_of(call.grid) if call.grid else 1
    launch = replace(new._launch, lnc=cores if cores > 1 else None)
    args, kwargs = tuple(map(_of_today, call.args)), {key: _of_today(each) for key, each in call.kwargs.items()} | grid
    try:
        after, _ = trace_results(launch, args, kwargs, target, options, collect=True)
    except NkiError as problem:
        return Proof(False, "it is refused", (f"{problem.code}: {problem.message}",))
    except Exception as problem:  # noqa: BLE001 - whatever the new kernel does
        return Proof(False, "it is refused", (f"{type(problem).__name__}: {problem}",))
    errors = tuple(
        dict.fromkeys(f"{f.code}: {f.message}" for tracer in after for f in tracer.findings if f.severity == "error")
    )
    if errors:
        return Proof(False, "it is refused", errors)
    if refused:
        return Proof(None, f"it passes the checks, and the old one does not run: {refused}")
    if len(before) == len(after) and all(
        _same(a.program, b.program, target) for a, b in zip(before, after, strict=True)
    ):
        return Proof(True, "same instructions")
    work = sum(_written(tracer.program) for tracer in (*before, *after))
    if work > EXECUTED_MOST:
        return Proof(None, TOO_LARGE)
    settings = replace(options, target=target.name)
    return _run_both(launch_of(old, call), launch, call, args, kwargs, settings)


def _of_today(value: Any) -> Any:
    """An argument of a kernel; operators that are NumPy's are those of nki.language."""
    return today_of(value) if today_of(value) is not None else value


def _run_both(
    old: Launch, new: Launch, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
) -> Proof:
    """Run both instruction by instruction, as that needs no compiler."""
    made_up = call.how == MADE_UP
    one, two = _arrays(call.args, call.kwargs, made_up), _arrays(args, kwargs, made_up)
    try:
        expected, got = (
            _leaves(run(replace(launch, eager=True), arguments, named, {}, options)[0])
            for launch, (arguments, named) in ((old, one), (new, two))
        )
    except Exception as problem:  # noqa: BLE001 - of either kernel
        return Proof(None, f"it could not be run: {type(problem).__name__}: {problem}".splitlines()[0])
    expected += [a for a in (*one[0], *one[1].values()) if isinstance(a, np.ndarray)]
    got += [a for name, a in (*enumerate(two[0]), *two[1].items()) if isinstance(a, np.ndarray)]
    same = len(expected) == len(got) and all(
        a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(expected, got, strict=True)
    )
    return Proof(same, "same results" if same else "other results")


def _arrays(args: tuple[Any, ...], kwargs: dict[str, Any], made_up: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    random = np.random.default_rng(0)

    def fresh(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if made_up:
            made: np.ndarray = np.asarray(random.standard_normal(value.shape)).astype(value.dtype)
            return made
        return value.copy()

    return tuple(map(fresh, args)), {key: fresh(each) for key, each in kwargs.items()}


def _leaves(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [] if value is None else [np.asarray(value)]


def _written(program: Program) -> int:
    return sum(view.size for item in program.body.items if isinstance(item, Issued) for view in item.written())


def _same(a: Program, b: Program, target: Target) -> bool:
    return _stream(_settled(a, target)) == _stream(_settled(b, target))


def _settled(program: Program, target: Target) -> Program:
    """The program without fills that a product overwrites, and with products that are told whether they add."""
    gone = _overwritten(program)
    body = Block(list(program.body.buffers), [item for item in program.body.items if id(item) not in gone])
    return accumulate_flags.run(replace(program, body=body), Context(target))


def _overwritten(program: Program) -> set[int]:
    """The fills of PSUM with zeros of which nothing is left, because a product begins a sum there."""
    found: set[int] = set()
    fills: dict[int, tuple[int, Any]] = {}
    for item in program.body.items:
        if not isinstance(item, Issued):
            return set()
        touched = {view.buffer.id for _, view in item.views()}
        if _is_zero_fill_of_psum(item):
            ((fill,),) = (tuple(item.written()),)
            fills[fill.buffer.id] = (id(item), fill)
            continue
        for key in touched & fills.keys():
            number, fill = fills.pop(key)
            fresh = item.instruction.name == "nc_matmul" and item.arguments.accumulate in (None, False)
            if fresh and any(view.buffer.id == key and view.size == fill.size for view in item.written()):
                found.add(number)
    return found


def _stream(program: Program) -> list[Any]:
    """The instructions without what changes no value: names and places."""
    numbers: dict[int, int] = {}

    def number(buffer: Buffer) -> Any:
        return numbers.setdefault(buffer.id, len(numbers)), str(buffer.region)

    found: list[Any] = []
    for item in program.body.items:
        if not isinstance(item, Issued):
            return [object()]
        arguments: list[Any] = []
        for name, value in zip(item.arguments._fields, item.arguments, strict=True):
            # A transpose overwrites, whether it is told to or not.
            told = name == "accumulate" and value is None and item.arguments.is_transpose
            arguments.append((name, False if told else _plain(value, number)))
        found.append((item.instruction.name, str(item.engine), tuple(arguments)))
    return found


def _is_zero_fill_of_psum(item: Issued) -> bool:
    if item.instruction.name != "memset" or item.arguments.value != 0:
        return False
    return all(view.buffer.region is MemoryRegion.psum for view in item.written())


def _plain(value: Any, number: Any) -> Any:
    if hasattr(value, "buffer") and hasattr(value, "strides"):
        dynamic = value.dynamic
        inner = (
            None
            if dynamic is None
            else tuple(_plain(getattr(dynamic, f, None), number) for f in ("indices", "scale", "dim"))
        )
        strides = tuple(s for s, n in zip(value.strides, value.shape, strict=True) if n != 1)
        shape = tuple(n for n in value.shape if n != 1)
        return number(value.buffer), str(value.dtype), shape, strides, value.offset, inner
    if isinstance(value, tuple | list):
        return tuple(_plain(each, number) for each in value)
    if isinstance(value, float):
        return value.hex()
    return value if isinstance(value, int | str | bool | None) else str(value)
