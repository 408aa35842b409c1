"""A compiled model: run it, profile it, save it, load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nki.graph.report import GraphReport
from nki.options import Options
from nki.profiling.evidence import tell_of_unmeasured
from nki.profiling.gate import profile_programs, profile_ranks
from nki.report import Executed
from nki.runtime.model import Model, Outcome, load_model
from nki.runtime.spans import span
from nki.spec.program import Program
from nki.store.artifact.model import Port
from nki.timing.ranks.step import RankProgram, Run, step_of

if TYPE_CHECKING:
    from nki.profiling.ranks.record import StepProfile
    from nki.profiling.record import Profile


class Executable:
    """A model that was compiled for a target; its methods may be called from several threads at once.

    Attributes:
        model: programs, weights and how to run them.
        report: how it was compiled.
    """

    def __init__(self, model: Model, report: GraphReport) -> None:
        self.model = model
        self.report = report

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def programs(self) -> tuple[Program, ...]:
        """One for each core; inputs are the arguments, then the constants."""
        return self.model.programs

    @property
    def arguments(self) -> tuple[Port, ...]:
        """Name, shape and dtype of each argument."""
        return self.model.part.arguments

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Name, shape and dtype of each result."""
        return self.model.part.outputs

    @property
    def aliases(self) -> dict[int, int]:
        """Results that take the memory of a donated argument: result and argument by position."""
        return dict(self.model.part.aliases)

    @property
    def executed(self) -> Executed:
        """Who executed the instructions of the last run that ended."""
        return self.model.executed

    def run(self, inputs: Sequence[np.ndarray], *, donate: bool = False) -> list[np.ndarray]:
        """The results for arrays of the arguments.

        Args:
            donate: whether arguments whose memory a result takes may be overwritten; their results are then the same
                arrays. Else they are copied.

        Raises:
            ArgumentError: "model.arguments" for arrays that the model was not compiled for.
        """
        return self.outcome(inputs, donate=donate).results

    def outcome(self, inputs: Sequence[np.ndarray], *, donate: bool = False) -> Outcome:
        """The results, who executed, and what was noticed."""
        with span(f"call {self.name}", "framework"):
            return self.model.execute(inputs, donate)

    def profile(self) -> Profile:
        """Where the time goes on the target, also by module, by the timing model and without running."""
        tell_of_unmeasured(self.model.target)
        return profile_programs(self.programs, self.model.target, kernels=self.model.part.kernels)

    def step(self, ranks: int, *, instance: str = "", slowdown: Mapping[int, float] | None = None) -> StepProfile:
        """What a step of many ranks takes that all run this model, which meets the others in its collectives.

        Args:
            ranks: how many there are; groups that the model does not name repeat those that it does.
            instance: what the ranks are cores of; by default the one of the target (`nki.topology.instance_names`).
            slowdown: how many times as long some ranks take for their own work.

        Raises:
            LaunchError: groups that do not fill the ranks (``step.groups``).
            TargetError: ``topology.unknown``.
        """
        tell_of_unmeasured(self.model.target)
        run = Run(self.programs, self.name, (), tuple(self.model.part.kernels))
        step = step_of([RankProgram(0, (run,))], ranks, dict(slowdown or {}))
        return profile_ranks(step, instance, self.model.target, self.name)

    def save(self, path: str | Path) -> None:
        """Write a ``.neff`` file with programs, weights and report. Raises ArtifactError "artifact.file"."""
        self.model.save(Path(path))

    @staticmethod
    def load(path: str | Path, options: Options | None = None) -> Executable:
        """A file that `save` wrote, after everything in it was checked. Raises ArtifactError."""
        return Executable.of(load_model(Path(path), options))

    @staticmethod
    def of(model: Model) -> Executable:
        """A model with the report that it carries. Raises ArtifactError "artifact.model" if it is none."""
        return Executable(model, GraphReport.of_json(model.part.report))
