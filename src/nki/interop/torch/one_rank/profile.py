"""The step of many ranks of a model, from the programs of one rank, or of those that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from nki.core.errors import LaunchError
from nki.core.source import UNKNOWN
from nki.interop.torch.compile.backend import NAME
from nki.profiling.evidence import tell_of_unmeasured
from nki.profiling.gate import profile_ranks
from nki.target.model import Target
from nki.timing.ranks.step import RankProgram, step_of

if TYPE_CHECKING:
    from nki.interop.torch.one_rank.recording import Recording
    from nki.profiling.ranks.record import StepProfile


def profile_step(
    step: Callable[[], Any],
    ranks: int,
    *,
    compiled: Sequence[int] = (0,),
    instance: str = "",
    slowdown: Mapping[int, float] | None = None,
    name: str = "",
) -> StepProfile:
    """What a step of many ranks takes, from the programs of one of them.

    `step` is called once for each rank of `compiled`, in this process, under PyTorch's fake process group. Graphs that
    ``torch.compile(backend="neuron")`` makes are compiled; they do not run, and their results are zeros.

    Args:
        step: what a rank does in a step: it makes the model, on the device "meta" if need be, and calls it. It asks
            `torch.distributed` for its rank and the number of ranks.
        ranks: how many there are.
        compiled: ranks whose programs differ; others do what the nearest of these below them does.
        instance: what the ranks are cores of; by default the one of the target (`nki.topology.instance_names`).
        slowdown: how many times as long some ranks take for their own work.
        name: for people; that of `step` by default.

    Raises:
        LaunchError: ranks or slowdowns that cannot be (``step.ranks``), nothing that the backend compiled
            (``step.empty``), programs for several targets (``step.target``), or ranks that do not fit together
            (``step.groups``, ``step.mismatch``, ``step.deadlock``).
        TargetError: ``topology.unknown``.
    """
    from nki.interop.torch.one_rank.fake_group import as_rank
    from nki.interop.torch.one_rank.pipelines import alone
    from nki.interop.torch.one_rank.recording import Recording

    slow = dict(slowdown or {})
    _check(ranks, compiled, slow)
    programs, targets, recordings = [], [], []
    for rank in sorted(set(compiled)):
        torch._dynamo.reset()  # so that nothing of another rank is called
        with as_rank(rank, ranks), alone(), Recording() as recording:
            step()
        if not recording.tasks:
            raise _empty(rank)
        programs.append(RankProgram(rank, tuple(recording.tasks)))
        targets += recording.targets
        recordings.append(recording)
    target = _one(targets)
    tell_of_unmeasured(target)
    shown = name or getattr(step, "__name__", "step")
    return profile_ranks(step_of(programs, ranks, slow), instance, target, shown, _notes(recordings))


def _check(ranks: int, compiled: Sequence[int], slowdown: Mapping[int, float]) -> None:
    for rank in (*compiled, *slowdown):
        if not 0 <= rank < ranks:
            raise _wrong(f"rank {rank} of {ranks} ranks", "ranks count from 0", "name ranks of the step")
    for rank, factor in slowdown.items():
        if not 0.0 < factor < float("inf"):
            problem = f"rank {rank} takes {factor:g} times as long"
            raise _wrong(
                problem, "a slowdown is a number above 0", "write 1.5 for a rank that takes half as long again"
            )
    if not compiled:
        raise _wrong("no rank is compiled", "one rank at least is compiled", "write compiled=(0,)")


def _wrong(message: str, rule: str, fix: str) -> LaunchError:
    return LaunchError("step.ranks", message, rule=rule, fix=fix, location=UNKNOWN)


def _empty(rank: int) -> LaunchError:
    return LaunchError(
        "step.empty",
        f"rank {rank} called no compiled graph and no collective",
        rule=f'what is timed is what torch.compile(backend="{NAME}") compiles, and what is between',
        fix=f'call the model through torch.compile(model, backend="{NAME}") in the step',
        location=UNKNOWN,
    )


def _one(targets: Sequence[Target]) -> Target:
    """The target of all programs."""
    found = {target.name: target for target in targets}
    if len(found) != 1:
        raise LaunchError(
            "step.target",
            f"programs of the step are for {', '.join(found) or 'no target'}",
            rule="the ranks of a step are cores of one generation",
            fix="compile all graphs for one target",
            location=UNKNOWN,
        )
    return next(iter(found.values()))


def _notes(recordings: Sequence[Recording]) -> list[str]:
    """What the times leave out."""
    eager, untimed = Counter[str](), Counter[str]()
    for each in recordings:
        eager.update(each.eager)
        untimed.update(each.untimed)
    found = []
    for names, what in ((eager, "operators between programs take no time here"), (untimed, "collectives have no time")):
        if names:
            shown = ", ".join(f"{name} ({count})" for name, count in names.most_common(4))
            found.append(f"{sum(names.values())} {what}: {shown}{', ...' * (len(names) > 4)}")
    return found
