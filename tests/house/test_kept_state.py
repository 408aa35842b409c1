"""What the package keeps for a process has its reason beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.figures import state, tree

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_everything_that_is_kept_for_a_process_says_why() -> None:
    """A line below it, or on the line of a cache, says why it may be global and what bounds it."""
    found = state.state(tree.sources(ROOT))
    assert len(found) > 100
    assert [f"{each.place} {each.name}" for each in found if not each.why] == []
