"""A barrier between the cores of a kernel that names no data: barrier."""

from __future__ import annotations

from typing import Annotated, Any

from nki.spec.arrays import Arrays
from nki.spec.cost_core import meets
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Ints, Name, choice
from nki.spec.rule import Rule

_SOURCE = "nki/api/nki/isa core_barrier"


@instruction(
    engines=(Engine.gpsimd, Engine.vector, Engine.scalar, Engine.sync),
    source=_SOURCE,
    feature="core_barrier",
    rules=[
        Rule(
            "cores",
            "cores is (0, 1), or (0,) for a kernel on one core",
            lambda a, t: a.cores in ((0, 1), (0,)),
            _SOURCE,
            "pass cores=(0, 1)",
            lambda a, t: f"cores is {a.cores}",
        ),
    ],
    steps=meets("Barrier"),
    effects=lambda a: () if a.cores == (0,) else ("rendezvous",),
)
def barrier(cores: Ints = (0, 1), engine: Annotated[Engine, choice(Engine)] = Engine.gpsimd, name: Name = None) -> None:
    """Both cores of a kernel on two cores wait here for each other, whatever they work on.

    Everything that a core issued before its barrier is done when the other one goes on. `nisa.core_barrier` names the
    tensor that is exchanged and orders only the accesses to it, which leaves a scheduler more freedom: prefer it where
    there is one tensor. The published package has no barrier without data.

    Args:
        cores: (0, 1); (0,) waits for nobody.
        engine: the engine that waits.
    """


@barrier.body
def _(a: Any, x: Arrays) -> None:
    if a.cores != (0,):
        x.barrier()
