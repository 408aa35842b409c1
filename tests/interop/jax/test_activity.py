"""How long kernels stay for calls that are on their way, and what counts as such a call."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from nki.core.errors import ExecutionError
from nki.report import Executed, Report

pytest.importorskip("jax")

from nki.interop.common.backend_config import BackendConfig
from nki.interop.jax import activity as jax_activity
from nki.interop.jax.activity import Activity
from nki.interop.jax.callee import Callee, Callees


def test_of_a_process_that_never_stops_calling_kernels_few_departed_ones_stay() -> None:
    activity = Activity()
    callees = Callees(activity)
    known = [_nothing(str(number)) for number in range(callees.MOST_DEPARTED + 9)]
    for callee in known:
        callees.hold(callees.one(callee))
    del callee, known
    with ThreadPoolExecutor(1) as pool, ExitStack() as running:
        pool.submit(running.enter_context, activity.call()).result()
        callees.release()
        assert len(callees) == callees.MOST_DEPARTED + 9, "none has been gone for a minute"
        time.sleep(0.01)
        callees.release(0.005)
        assert len(callees) == callees.MOST_DEPARTED
        assert callees.find("8") is None and callees.find("9") is not None


def _nothing(key: str) -> Callee:
    config = BackendConfig(key, "nothing", (), (), (), False)
    return Callee(
        config,
        (),
        (),
        lambda arrays: ((), Executed(), ()),
        Report("nothing", "trn2", "compiled", 1, "ordered", True, "", (), ()),
    )


def test_an_interrupt_at_any_place_leaves_no_call_behind() -> None:
    activity = Activity()
    activity.call().__enter__()  # never left
    assert activity.quiet_for() < 60
    time.sleep(0.01)
    assert activity.quiet_for() > 0


def test_calls_that_never_stop_are_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_activity, "_QUIET_SECONDS", 60.0)
    monkeypatch.setattr(jax_activity, "_PATIENCE", 0.05)
    activity = Activity()
    with activity.call():
        pass
    activity.drain()
    assert not activity.refusing, "no program was made that could be waited for"
    activity.expected = True
    activity.drain()
    with pytest.raises(ExecutionError, match=r"while the process ends") as caught, activity.call():
        pass
    assert caught.value.code == "jax.exit"
