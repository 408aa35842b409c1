"""What a kernel takes on its target, by the timing model: compiled as a call compiles it, and rarely run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from nki.core.collector import paused_collector
from nki.driver import gate
from nki.driver.compile import compiled, traced
from nki.driver.compiled import Compiled
from nki.driver.execute import run_compiled
from nki.driver.launch import Launch
from nki.driver.prepare import Prepared
from nki.options import from_environment
from nki.profiling.evidence import tell_of_unmeasured
from nki.profiling.gate import profile_programs
from nki.ranks.current import communicator
from nki.report import Report
from nki.spec.program import depends_on_data, loops
from nki.target.load import load_target

if TYPE_CHECKING:
    from nki.profiling.record import Profile
    from nki.timing.core_time import CoreTime


class Question(NamedTuple):
    """A call whose time is asked for, as far as it says which instructions run; see `nki.driver.gate.Asked`."""

    prepared: Prepared
    asked: gate.Asked


def question(prepared: Prepared) -> Question:
    """Trace a call and take the first passes, as compiling it would.

    Raises:
        NkiError: what the kernel's author did wrong.
    """
    programs = [tracer.program for tracer in traced(prepared)[0]]
    with paused_collector():
        return Question(prepared, gate.asked(programs, prepared.target, prepared.options, prepared.launch.config))


def times_of(question: Question) -> tuple[CoreTime, ...]:
    """What the call takes on each core, compiled: as `profile_of` has it, and without IR, proofs and native code.

    Raises:
        NkiError: the kernel cannot be compiled.
    """
    prepared, asked = question
    with paused_collector():
        return gate.times_of(asked, prepared.target, prepared.options, prepared.launch.config)


def profile_of(prepared: Prepared, run: bool = False) -> Profile:
    """The profile of a call that is compiled, whether or not it would run eagerly.

    Args:
        run: run it on copies of the arrays if trips of its loops depend on data, and count them; such a loop is one
            trip otherwise, which the profile says.
    """
    kernel, target = compiled(prepared), prepared.target
    tell_of_unmeasured(target)
    trips = None
    if run and any(depends_on_data(loop) for program in kernel.programs for loop in loops(program.body)):
        trips = _executed_trips(kernel, prepared)
    imitate, kept = prepared.options.imitate, kernel.kept_loads
    return profile_programs(kernel.programs, target, trips, imitate=imitate, kept_loads=kept)


def profile_of_call(report: Report, launch: Launch) -> Profile:
    """The profile of a call that was made; what ran eagerly is compiled first."""
    target, programs, trips = load_target(report.target), report.programs, report.executed.trips
    kept = report.kept_loads
    if report.mode == "eager":
        config = launch.config
        options = replace(from_environment(), imitate=report.imitate)
        built = gate.compile_kernel(programs, target, options, config)
        programs, kept = built.programs, built.kept
    tell_of_unmeasured(target)
    return profile_programs(programs, target, trips or None, imitate=report.imitate, kept_loads=kept)


def _executed_trips(kernel: Compiled, prepared: Prepared) -> Sequence[Mapping[int, float]]:
    """For each core how often the body of each loop runs, by the number of the loop; on copies of the arrays."""
    inputs = [host.array.copy() for host in prepared.arguments.arrays]
    _, executed = run_compiled(
        kernel, inputs, prepared.target, prepared.options, lambda finding: None, None, communicator()
    )
    return executed.trips
