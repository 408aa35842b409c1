"""Random kernels give the same bytes eagerly, compiled, and under orders of their queues that plain runs never take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nki.spec.program import Block, ForLoop, WhileLoop
from nki.testing.equality import differences
from tests.fuzz.checks import differing, outcome, traced
from tests.fuzz.elementwise import STEPS as ELEMENTWISE
from tests.fuzz.movement import STEPS as MOVEMENT
from tests.fuzz.programs import case

IN_A_GROUP = 10
GROUPS = [0, *(pytest.param(group, marks=pytest.mark.slow) for group in range(1, 24))]
"""The first ones are the same kernels in every run, so that they tell of the change; the nightly run has more."""


@pytest.mark.parametrize("group", GROUPS)
def test_random_kernels_do_the_same_in_every_mode_and_order(group: int) -> None:
    found = [outcome(case(seed)) for seed in range(group * IN_A_GROUP, (group + 1) * IN_A_GROUP)]
    assert {one.seed: one.faults for one in found if one.faults} == {}
    assert all(one.policies == 3 and one.instructions for one in found)


def test_a_difference_says_where() -> None:
    assert differing([b"abc", b"0123456789"], [b"abc", b"01x345y789"]) == (
        "results 1 (2 of bytes 2 to 6, 7833343579 for 3233343536)"
    )
    assert differing([b"", b"a"], [b"a", b"a"]) == "results 0 (0 bytes, and 1)"
    assert differing([b"a"], []) == "1 results, and 0"


def test_a_number_makes_the_same_kernel_again() -> None:
    for seed in range(5):
        first, second = (traced(case(seed)) for _ in "ab")
        assert first[0].body.items
        assert [differences(one, other) for one, other in zip(first, second, strict=True)] == [[]] * len(first)


def test_the_kernels_have_all_that_they_should() -> None:
    """Loops in loops, two cores, orders that the kernel asks for, addresses, registers, and most instructions."""
    names: set[str] = set()
    features: set[str] = set()
    for seed in range(100, 160):
        programs = traced(case(seed))
        body = programs[0].body
        names |= {issued.instruction.name for issued in body.walk()}
        features |= {f"{len(programs)} cores"} | set(_loops(body, 0))
        features |= {"edges"} if programs[0].edges else set()
        features |= {"explicit addresses" for b in body.all_buffers() if b.address}
        features |= {type(v.dynamic).__name__ for issued in body.walk() for _, v in issued.views()}
    wanted = {"1 cores", "2 cores", "for 0", "for 1", "while 0", "edges", "explicit addresses", "ScalarOffset"}
    assert wanted <= features
    assert len(names) >= len(ELEMENTWISE) + len(MOVEMENT)


def _loops(block: Block, depth: int) -> Iterator[str]:
    for item in block.items:
        if isinstance(item, ForLoop | WhileLoop):
            yield f"{'for' if isinstance(item, ForLoop) else 'while'} {depth}"
            yield from _loops(item.body, depth + 1)
