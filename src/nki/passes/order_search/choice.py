"""The choice: of the candidates that fit, the one that takes the least time, and on a tie the one made first.

The order of the kernel is made first, so that it stays unless another one is shorter: the search never makes a kernel
slower than it was written, as far as the model sees.

Of large segments, orders that differ little count as equally long, and the list scheduler's own estimate decides, as it
does in a compiler that times nothing (`Imitation.equal_orders`).
"""

from __future__ import annotations

from collections.abc import Sequence

from nki.passes.order_search.candidates import Candidate

MOST_TIMED = 900
"""Instructions of segments and programs of which all candidates compete on the timeline; larger ones have fewer."""


def better(best: Candidate | None, other: Candidate | None) -> Candidate | None:
    """The better one of the best so far and one that was made later; None stands for an order that does not fit."""
    if best is None or other is None:
        return best or other
    return other if other.makespan < best.makespan else best


def shortest(lengths: Sequence[float], estimates: Sequence[float], instructions: int, equal: float) -> int:
    """The number of the schedule that is taken for a segment with so many instructions.

    Args:
        lengths: ns of the schedules on the timeline.
        estimates: ns as the list scheduler estimates them.
        instructions: of the segment.
        equal: length over the shortest one up to which orders of larger segments are as good.
    """
    least = min(lengths)
    if instructions <= MOST_TIMED:
        return lengths.index(least)
    return min((estimates[number], number) for number, ns in enumerate(lengths) if ns <= equal * least)[1]
