"""What a meeting of two cores costs, and which targets have two."""

from __future__ import annotations

from nki.core.dtypes import float32
from nki.core.errors import LaunchError
from nki.core.source import UNKNOWN
from nki.graph.ir import TensorType
from nki.graph.kernels import Kernels
from nki.graph.link import glue
from nki.target.model import Target
from nki.timing.cores import timelines
from nki.timing.timeline import timeline

_ELEMENT = TensorType((1,), float32)


def meeting_ns(kernels: Kernels, target: Target) -> float:
    """ns that the work of two cores takes longer if they meet in the middle of it.

    That is the meeting, and a transfer that has to end before it although kernels overlap otherwise. Loads of weights
    pass by.
    """
    meet = max(found.makespan for found in timelines(kernels.made_for(2, "meet", glue.meet, glue.BOTH), target))
    move = timeline(kernels.made("copy", glue.copy, (_ELEMENT, _ELEMENT), UNKNOWN), target).makespan
    return meet + move


def check_lnc(model: str, lnc: int, target: Target) -> None:
    """Raise LaunchError "launch.lnc" if a logical core of the target cannot have so many cores."""
    if lnc not in target.lnc:
        counts = " or ".join(map(str, target.lnc))
        raise LaunchError(
            "launch.lnc",
            f"model {model} is to be compiled for a logical core of {lnc} cores",
            rule=f"a logical core of {target.name} has {counts} core{'' if target.lnc == (1,) else 's'}",
            source="about-neuron/arch/neuron-features/logical-neuroncore-config.rst",
            fix=f"compile it with lnc={target.lnc[-1]}",
            location=UNKNOWN,
        )
