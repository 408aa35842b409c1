"""Random kernels give the same bytes eagerly, compiled, and under orders of their queues that a plain run never takes."""

from __future__ import annotations

from collections import Counter

import pytest

from nki.sim.adversary import Policy
from nki.spec.program import Block, Program
from nki.spec.queue import queue_class
from tests.fuzz.checks import adverse, compiled, outcome, some_policies
from tests.fuzz.programs import case
from tests.fuzz.stripped import without_waits

GROUPS = range(6)
IN_A_GROUP = 10


@pytest.mark.parametrize("group", GROUPS)
def test_random_kernels_do_the_same_in_every_mode_and_order(group: int) -> None:
    faults = {}
    for seed in range(group * IN_A_GROUP, (group + 1) * IN_A_GROUP):
        found = outcome(case(seed))
        assert found.policies >= 3 or found.faults
        if found.faults:
            faults[seed] = found.faults
    assert faults == {}
