"""Running a compiled file: its arrays by name or by position, and the machine that executes what was loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nki.core.errors import ArtifactError, UsageError
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer
from nki.driver.compiled import Compiled, Kept
from nki.driver.execute import run_compiled
from nki.frontend.host import take
from nki.frontend.results import check_writable, deliver, write_inputs, written_inputs
from nki.passes.check_races import program_races, refuse_races
from nki.profiling.gate import profile_programs
from nki.ranks.current import communicator
from nki.report import Report
from nki.spec.rule import Finding
from nki.store.artifact.container import load
from nki.store.artifact.contents import Artifact
from nki.target.load import load_target
from nki.target.model import Target
from nki.tools.arguments import made_up, parse_arguments
from nki.tools.options import options_of
from nki.tools.request import usage_error

if TYPE_CHECKING:
    from nki.profiling.record import Profile


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked file, and the target that it was compiled for."""

    artifact: Artifact
    target: Target

    def profile(self) -> Profile:
        """Where the time goes on the target; of a model also by module."""
        model = self.artifact.model
        kernels = () if model is None else model.kernels
        imitate = str(self.artifact.origin.options.get("imitate", ""))
        return profile_programs(self.artifact.programs, self.target, kernels=kernels, imitate=imitate)


def load_artifact(path: Path, target: str | None) -> Loaded:
    """Read and check a file, and prove that its queues keep every order that matters.

    Raises:
        ArtifactError: the file is not what `nki compile` writes, or it is for another target.
        ExecutionError: its schedule has a race or a deadlock, see `refuse_races`.
    """
    artifact = load(path)
    found = load_target(artifact.programs[0].target)
    if target is not None and load_target(target).name != found.name:
        raise ArtifactError(
            "run.target",
            f"{path} was compiled for {found.name}, and is to run for {load_target(target).name}",
            rule="a compiled file belongs to one target",
            fix=f"omit --target, or compile the kernel for {load_target(target).name}",
            location=UNKNOWN,
        )
    refuse_races(artifact.programs, found)
    return Loaded(artifact, found)


def artifact_inputs(artifact: Artifact, args: Sequence[str], inputs: str | None, seed: int) -> list[np.ndarray]:
    """The arrays of a call in the order of the file's arguments; made-up ones if none is given, as kernels get them.

    Raises:
        UsageError: one is missing or unknown, or has another shape or dtype than the file was compiled for.
    """
    buffers = artifact.programs[0].inputs
    if inputs is None and not args:
        return [made_up(buffer.name, buffer.shape, buffer.dtype, seed) for buffer in buffers]
    if inputs is None:
        return _named(buffers, parse_arguments(args, seed))
    if args:
        raise usage_error("run.inputs", "--arg and --inputs together", "give all arrays in one of the two ways")
    paths = [Path(text.strip()) for text in inputs.split(",") if text.strip()]
    if len(paths) != len(buffers):
        names = ", ".join(buffer.name for buffer in buffers) or "none"
        raise usage_error("run.inputs", f"--inputs names {len(paths)} files, for {names}", "name one for each argument")
    return [_read(path, buffer) for path, buffer in zip(paths, buffers, strict=True)]


def run_artifact(loaded: Loaded, arrays: Sequence[np.ndarray]) -> tuple[Any, Report]:
    """Execute a compiled file as a call of the kernel does."""
    programs, target = loaded.artifact.programs, loaded.target
    options = options_of(target.name)
    hosts = [take(array, "numpy", buffer.name) for array, buffer in zip(arrays, programs[0].inputs, strict=True)]
    written = written_inputs(programs)
    check_writable(programs, hosts, written)
    findings: list[Finding] = [race.finding("warning") for race in program_races(programs, target)]
    compiled = Compiled(programs, result=None, findings=(), kernel_hash="", written=written, kept=Kept())
    inputs = [host.array for host in hosts]
    storages, executed = run_compiled(compiled, inputs, target, options, findings.append, None, communicator())
    write_inputs(hosts, written)
    outputs = programs[0].outputs
    tree: Any = outputs[0] if len(outputs) == 1 else tuple(outputs) or None
    result = deliver(tree, programs[0], storages, hosts)
    return result, Report(
        kernel=programs[0].name,
        target=target.name,
        mode="compiled",
        cores=len(programs),
        matmul=options.matmul,
        precise_fp=options.precise_fp,
        kernel_hash=str(loaded.artifact.meta["ir_hash"]),
        findings=tuple(findings),
        programs=programs,
        compiled="artifact",
        executed=executed,
        imitate=str(loaded.artifact.origin.options.get("imitate", "")),
    )


def _named(buffers: Sequence[Buffer], values: dict[str, Any]) -> list[np.ndarray]:
    names = [buffer.name for buffer in buffers]
    wanted = ", ".join(f"{b.name}={'x'.join(map(str, b.shape))}:{b.dtype}" for b in buffers) or "none"
    for name in values:
        if name not in names:
            raise _error(f"the compiled kernel has no array argument {name!r}", wanted)
    missing = [name for name in names if name not in values]
    if missing:
        raise _error(f"no array for {', '.join(missing)}", wanted)
    return [_checked(values[buffer.name], buffer, wanted) for buffer in buffers]


def _read(path: Path, buffer: Buffer) -> np.ndarray:
    shape = "x".join(map(str, buffer.shape))
    made = parse_arguments([f"array={shape}:{buffer.dtype}:{path}"])["array"]
    return _checked(made, buffer, f"{buffer.name}={shape}:{buffer.dtype}")


def _checked(value: Any, buffer: Buffer, wanted: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise _error(f"{buffer.name} is {value!r}, which was settled when the kernel was compiled", wanted)
    if value.shape != buffer.shape or value.dtype != buffer.dtype.numpy:
        raise _error(f"{buffer.name} is {value.dtype}{list(value.shape)}", wanted)
    return value


def _error(message: str, wanted: str) -> UsageError:
    return UsageError(
        "run.arguments",
        message,
        rule=f"the file was compiled for {wanted}",
        fix=f"write --arg {wanted.partition(', ')[0]}, or compile the kernel for other shapes",
        location=UNKNOWN,
    )
