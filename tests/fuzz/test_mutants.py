"""The compiler's checks refuse every faulty schedule of random kernels that can go wrong."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.judge import verdicts

COUNT = 60


def test_faulty_schedules_are_refused() -> None:
    found = list(verdicts(seed=11, count=COUNT, of_a_kernel=5, most=40))
    assert [v for v in found if v.result == "missed"] == []
    assert [v for v in found if v.shown and not v.fault] == [], "a hostile run shows what the oracle denies"
    sums = Counter(v.result for v in found)
    assert sums["caught"] > COUNT // 2, "most of these faults matter"
    assert sum(bool(v.shown) for v in found) > COUNT // 2, "and hostile runs show most of those"
