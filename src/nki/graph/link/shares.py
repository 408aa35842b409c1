"""What each core does of a model's steps: what the division decides and the linker carries out."""

from __future__ import annotations

from dataclasses import dataclass

from nki.graph.link.steps import Choice, ModelLoop, Step
from nki.spec.program import Program

CORES = 2
"""Physical cores of a logical core that a model is divided between."""


@dataclass(frozen=True, slots=True)
class StepShare:
    """A step on two cores.

    Attributes:
        meets: whether the cores meet before it.
        programs: that the cores run; None for a core that does nothing, and where the step is no kernel or has
            programs for both cores itself.
        inner: of a loop that both cores run, those of its condition, and of its body with the condition after it; of a
            choice those of each branch. None if the first core runs it alone.
    """

    meets: bool
    programs: tuple[Program | None, Program | None] = (None, None)
    inner: tuple[Shares, ...] | None = None


Shares = tuple[StepShare, ...]
"""What the cores do of steps, in order."""


def blocks(step: Step) -> list[list[Step]]:
    """The steps in a step, as they are divided: a loop's condition, and its body with the condition; branches."""
    if isinstance(step, ModelLoop):
        return [step.condition, [*step.body, *step.condition]]
    return [branch for branch, _ in step.branches] if isinstance(step, Choice) else []
