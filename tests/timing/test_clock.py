"""The limit on the Tensor engine's clock against a simulation in steps of one ns."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from nki.target.load import load_target
from nki.timing.clock import Clock, ClockState

THROTTLE = load_target("unit").throttle
RAMP, WINDOW, RATE = int(THROTTLE.ramp_ns), int(THROTTLE.window_ns), THROTTLE.start_utilization
WORK = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 30).map(lambda n: 4 * n)), min_size=1, max_size=12)


def step_by_step(work: list[tuple[int, int]]) -> list[float]:
    """Ends of multiplications ``(gap before, ns at full rate)``: a bit for every ns that the engine was busy."""
    history: dict[int, bool] = {}
    now, ramp, ends = 0, 0, []
    for gap, ns in work:
        now += gap
        fresh = not history.get(now - 1, False)
        if fresh and now >= ramp:
            share = sum(history.get(t, False) for t in range(now - WINDOW, now)) / WINDOW
            if share < THROTTLE.release_utilization:
                ramp = now + RAMP
        left = float(ns)
        while left > 0:
            history[now] = True
            left -= RATE if now < ramp else 1.0
            now += 1
        ends.append(now)
    return ends


@given(WORK)
def test_the_clock_agrees_with_a_simulation_in_steps(work: list[tuple[int, int]]) -> None:
    clock, now, ends = Clock(THROTTLE, ClockState()), 0.0, []
    for gap, ns in work:
        now = clock.multiply(now + gap, float(ns))
        ends.append(ceil(now))  # the steps of the reference end at whole ns
        if now != ends[-1]:
            break
    assert ends == step_by_step(work[: len(ends)])


@given(WORK, st.integers(1, 11))
def test_a_clock_goes_on_from_its_state(work: list[tuple[int, int]], cut: int) -> None:
    whole, first = Clock(THROTTLE, ClockState()), Clock(THROTTLE, ClockState())
    now = 0.0
    second, base = first, 0.0
    for number, (gap, ns) in enumerate(work):
        if number == cut:
            base, second = now, Clock(THROTTLE, first.state(now))
        start = now + gap
        now = whole.multiply(start, float(ns))
        assert abs(base + second.multiply(start - base, float(ns)) - now) < 1e-9


def test_work_after_a_short_gap_keeps_its_rate() -> None:
    clock = Clock(THROTTLE, ClockState())
    end = clock.multiply(0.0, 3.0 * RAMP)
    short, long = 0.4 * WINDOW, 0.6 * WINDOW
    again = clock.multiply(end + short, 2.0 * RAMP)
    assert again == end + short + 2.0 * RAMP
    assert clock.multiply(again + long, 10.0) == again + long + 10.0 / RATE
    assert THROTTLE.release_utilization == 0.5, "the gaps of this test are chosen for one half"
