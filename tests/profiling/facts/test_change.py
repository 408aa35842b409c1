"""What instructions of a changed program need in the place of those that are gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nki.profiling.facts.change import MERGED, Change, Needs

LAYERS = 40


def test_ways_that_meet_again_are_followed_once() -> None:
    """Two instructions in each layer that need both of the layer before, all of them gone: 2**40 ways to the first."""
    needs: Any = Needs.__new__(Needs)
    items = [SimpleNamespace(queue=None, engine=None, instruction=SimpleNamespace(effects=lambda _: ()))]
    needs._core = SimpleNamespace(items=items * (2 * LAYERS + 2), recipes=[SimpleNamespace(kind=0)] * (2 * LAYERS + 2))
    layers: list[tuple[int, ...]] = [()]
    for layer in range(LAYERS):
        before = (0,) if layer == 0 else (2 * layer - 1, 2 * layer)
        layers += [before, before]
    layers.append((2 * LAYERS - 1, 2 * LAYERS))
    vars(needs)["logical"] = layers
    change = Change(gone=dict.fromkeys(range(1, 2 * LAYERS + 1), MERGED))
    assert needs.of(2 * LAYERS + 1, change) == [0]
