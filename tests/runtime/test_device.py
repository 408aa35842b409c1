"""Threads of cores: forked processes, interrupts, and what is left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nki.runtime import NrtError, device
from nki.runtime.device import DeviceCore, Job
from nki.runtime.memory import Account
from tests.forked import statuses


def _core(number: int) -> DeviceCore:
    return DeviceCore(number, 0, Account("stack", 1))


def _waits(core: DeviceCore, run: Callable[[], Any], *others: DeviceCore) -> threading.Thread:
    """A thread that executes something, once it waits for the core."""
    before = core._lane.jobs.qsize()
    thread = threading.Thread(target=core.execute, args=(run, None, others))
    thread.start()
    until = time.monotonic() + 20
    while core.status == "ready" and core._lane.jobs.qsize() == before and time.monotonic() < until:
        time.sleep(0.01)
    return thread


FORKED = """
import os, signal, threading
from nki.runtime.device import DeviceCore
from nki.runtime.memory import Account

core, go, began = DeviceCore(0, 0, Account("stack", 1)), threading.Event(), threading.Event()
waiting = threading.Thread(target=core.execute, args=(lambda: (began.set(), go.wait()), None))
waiting.start()
began.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(core.execute(lambda: 7, None))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go.set()
waiting.join()
print(core.execute(lambda: 8, None))
"""


def test_a_core_that_was_used_works_in_a_forked_process() -> None:
    """In a process of its own: the libraries of other tests object to forks."""
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "7\n8\n"), done.stderr


OPEN_CALL = """
from contextlib import contextmanager
import numpy as np
from nki.graph.compile import Setting
from nki.runtime import NrtError, Runtime
from tests.graph import stages
from tests.graph.hand_made import EMITTERS, group, module, value
from tests.runtime.slow import Slow

a, b = value("a", 4, 8), value("b", 4, 8)
model = stages.compiled(module((a,), [group("add", (a, a), b)], b), Setting("twice", "trn2", emitters=EMITTERS)).model
runtime = Runtime("trn2")
loaded = runtime.load(model)
slow = loaded.model = Slow(model)
inputs, outputs = runtime.tensors_of(loaded)
runtime.write(inputs["a"], np.ones((4, 8), np.float32))

def execute():
    runtime.execute(loaded, inputs, outputs)
    return runtime.read(next(iter(outputs.values())))

@contextmanager
def hold():
    thread = threading.Thread(target=execute)
    thread.start()
    assert slow.started.wait(60)
    with runtime._lock, runtime._cores[0].account._lock:
        yield
    slow.go.set()
    thread.join()

def child():
    loaded.model = model
    assert (execute() == 2).all()
    runtime.unload(loaded)
    runtime.close()

while_held(hold, child)
try:
    runtime.unload(loaded)
except NrtError as error:
    print(error.code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_calls_of_other_threads_are_not_open_in_a_forked_process(tmp_path: Path) -> None:
    assert statuses(OPEN_CALL, tmp_path) == ["0"]


def test_an_interrupted_call_that_waits_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    core, go, ran = _core(0), threading.Event(), []
    waiting = _waits(core, go.wait)
    main = threading.main_thread()
    wait = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        return wait(event, timeout)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Event, "wait", interrupted)
        core.execute(lambda: ran.append(1), None)
    go.set()
    waiting.join()
    assert core.execute(lambda: 8, None) == 8
    assert not ran
    core.close()


def test_an_idle_core_keeps_no_result() -> None:
    class Result:
        pass

    core = _core(0)
    found = weakref.ref(core.execute(Result, None))
    until = time.monotonic() + 20
    while found() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert found() is None
    core.close()


def test_a_call_on_two_cores_that_waits_for_close_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    first, second, go = _core(0), _core(1), threading.Event()
    waiting = [_waits(first, go.wait)]
    waiting.append(_waits(first, lambda: 5, second))
    first.close()
    second.close()
    go.set()
    for thread in waiting:
        thread.join()
    until = time.monotonic() + 20
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before


def test_a_call_that_is_left_out_because_it_is_late_took_too_long() -> None:
    core, go = _core(0), threading.Event()
    waiting = _waits(core, go.wait)

    class Late(threading.Event):
        """Is set just after nobody wanted to wait any more."""

        def wait(self, timeout: float | None = None) -> bool:
            job.late = True
            go.set()
            super().wait(20)
            return False

    job = Job(lambda: 5, Late())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(NrtError) as caught:
        patch.setattr(device, "Job", lambda run: job)
        core.execute(job.run, 0.1)
    assert caught.value.code == "runtime.timeout"
    waiting.join()
    core.close()
