"""A model linked for two cores, in the way that is shorter by the timing model: divided, or on the first core alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nki.graph.kernels import Kernels
from nki.graph.link.link import Linked, link
from nki.graph.link.plan import MemoryPlan
from nki.graph.link.steps import ModelSteps, walk
from nki.graph.partition.cut import whole_kernels
from nki.graph.partition.divide import Division, divide
from nki.graph.partition.halves import Divisible
from nki.graph.partition.meeting_cost import meeting_ns
from nki.target.model import Target
from nki.timing.cores import timelines

_DOUBTFUL = 0.85
"""Part of the time on one core that two are thought to take, from which on both are looked at as a whole."""

_LONGER = "the whole model would take longer on two cores"


def link_for_two(
    name: str, steps: ModelSteps, plan: MemoryPlan, cuts: Mapping[int, Divisible], kernels: Kernels, target: Target
) -> tuple[Linked, Division]:
    """Divide the steps between two cores, and link them. Raises what `link` raises.

    Args:
        cuts: of kernels, by the identity of their programs.
    """
    division = divide(steps, plan, cuts, meeting_ns(kernels, target), target)
    linked = link(name, steps, plan, kernels, target, division.shares)
    one, two = division.ns
    if two < _DOUBTFUL * one or not division.is_divided:
        return linked, division
    alone = divide(steps, plan, whole_kernels(walk(steps.steps)), 0.0, target)
    other = link(name, steps, plan, kernels, target, alone.shares)
    if _length(linked, target) < _length(other, target):
        return linked, division
    reasons = {(kind, _LONGER): count for (kind, _), count in alone.reasons.items()}
    return other, replace(alone, reasons=reasons)


def _length(linked: Linked, target: Target) -> float:
    return max(found.makespan for found in timelines(linked.programs, target))
