"""Which conflicts a new order of a segment turns round, by one walk of the proof over it."""

from __future__ import annotations

from collections.abc import Sequence

from nki.passes.analysis.footprints import Accesses
from nki.passes.proof.conflicts import Doer
from nki.passes.proof.faults import Race, broken, state_race, unordered
from nki.passes.proof.happens_before import _OrderCheck
from nki.spec.program import Issued, Program
from nki.target.model import Target


def check_reordering(
    items: Sequence[Issued],
    order: Sequence[int],
    program: Program,
    target: Target,
    edges: Sequence[tuple[int, int]] = (),
) -> list[Race]:
    """Conflicts whose direction changes if the instructions of a segment run in another order.

    Args:
        items: in the old order.
        order: for each place of the new order the position in `items`.
        edges: pairs of positions in `items` that must keep their order.
    """
    accesses = Accesses(program, target)
    touched = [accesses.of(items[old]) for old in order]
    watch = _OrderCheck(touched)
    for new, old in enumerate(order):  # one queue that completes in the old order
        watch.step(touched[new], Doer(new, 0, old + 1), (old,))
    place = {old: new for new, old in enumerate(order)}
    races = [unordered(items[order[c.earlier]], items[order[c.later]], c, program.core) for c in watch.conflicts]
    for what, earlier, later in watch.states:
        races.append(state_race(items[order[earlier]], items[order[later]], what, program.core))
    for producer, consumer in edges:
        if place[producer] > place[consumer]:
            races.append(broken("edge", items[consumer], items[producer], program.core))
    return races
