"""Accesses that share no byte: against sets of bytes, and at a cost that does not grow with the patterns."""

from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as some

from nki.passes.analysis.disjoint import disjoint, starts
from nki.passes.analysis.footprints import Footprint


def pattern(low: int, dims: tuple[tuple[int, int], ...], run: int) -> Footprint:
    return Footprint("hbm", "slot", (0, 1), low, dims, run, hbm=True)


@some.composite
def patterns(draw: some.DrawFn) -> Footprint:
    """One to twelve runs with a step between them."""
    run, gap = draw(some.integers(1, 9)), draw(some.integers(0, 20))
    count = draw(some.integers(1, 12))
    return pattern(draw(some.integers(0, 80)), ((run + gap, count),) if count > 1 else (), run)


def places(footprint: Footprint) -> set[int]:
    return {low + byte for low in starts(footprint.low, footprint.dims) for byte in range(footprint.run)}


@settings(max_examples=300, deadline=None)
@given(patterns(), patterns())
def test_patterns_of_any_two_steps(a: Footprint, b: Footprint) -> None:
    apart = not places(a) & places(b)
    assert disjoint(a, b) == disjoint(b, a) == apart


def test_runs_that_lie_before_another_pattern_are_not_asked_about() -> None:
    """Tensors of different shapes, one after another in device memory: compared for every tile of both."""
    a = pattern(0, ((4096, 256),), 512)
    others = [pattern(240 * 4096 + 600 + n % 400, ((14336, 255),), 1024) for n in range(4000)]
    began = process_time()
    found = [disjoint(a, b) for b in others]
    assert process_time() - began < 0.3  # 0.03 s here; 1.5 s where all 256 runs are asked about, one by one
    assert all(found)
    assert not disjoint(a, pattern(240 * 4096 + 500, ((14336, 255),), 1024))
