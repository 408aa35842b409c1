"""A barrier between the cores of a kernel that names no data: barrier."""

from __future__ import annotations

from typing import Annotated, Any

from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Name, choice


@instruction(
    engines=(Engine.gpsimd, Engine.vector, Engine.scalar, Engine.sync),
    source="nki/api/nki/isa core_barrier",
    feature="core_barrier",
)
def barrier(engine: Annotated[Engine, choice(Engine)] = Engine.gpsimd, name: Name = None) -> None:
    """Every core of the kernel waits here until all have arrived; on one core nothing happens.

    Everything that a core issued before its barrier is done when the others go on. `nisa.core_barrier` says which tensor is
    exchanged and orders only its accesses, which leaves the scheduler more freedom; prefer it where there is one tensor.

    Args:
        engine: the engine that waits.
    """


@barrier.body
def _(a: Any, x: Arrays) -> None:
    if x.cores > 1:
        x.barrier()
