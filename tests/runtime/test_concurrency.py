"""Threads that call the same and different models at once for a short time; see `benchmarks/concurrency.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

_FILE = Path(__file__).parents[2] / "benchmarks" / "concurrency.py"


@pytest.fixture(scope="module")
def concurrency() -> ModuleType:
    spec = importlib.util.spec_from_file_location("concurrency", _FILE)
    assert spec is not None and spec.loader is not None
    made = sys.modules["concurrency"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_threads_at_once_give_what_one_gives(concurrency: ModuleType) -> None:
    known = concurrency.cases()
    for called in ([known[0]] * 2, known):
        seconds, calls = 1.0, 0
        while calls <= 10 * len(called):  # others may have the processors
            tally = concurrency.phase(called, seconds)
            assert (tally.wrong, tally.errors) == (0, 0)
            assert seconds < 60
            seconds, calls = 2 * seconds, calls + tally.calls


def test_a_wrong_result_is_counted(concurrency: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes on with the calls, so that there are enough of them."""
    case = concurrency.cases()[1]
    broken: list[int] = []

    def call(*arrays):
        result = case.call(*arrays)
        broken.append(len(broken))
        if len(broken) > 2 * concurrency._SEEDS and len(broken) % 2:
            result = result + 1
        return result

    clock = SimpleNamespace(monotonic=lambda: float(len(broken)), sleep=lambda _: None)
    monkeypatch.setattr(concurrency, "time", clock)
    tally = concurrency.phase([concurrency.Case("broken", call, case.make, case.expected)], 20.0)
    assert (tally.calls, tally.wrong) == (20, 8)
