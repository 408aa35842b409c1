"""Processes as an executor: each call ends as it would here, and a process that ends takes one call with it."""

from __future__ import annotations

import os
from concurrent.futures import BrokenExecutor

import pytest

from nki.tune.processes import CallTimeoutError, ProcessEnded, Processes, running
from tests.tune import calls


def test_calls_end_as_here_and_a_process_alone() -> None:
    with running(Processes(1, None, calls.double, (1,))) as processes:
        assert processes.submit(calls.double, 21).result() == 42
        first = processes.submit(calls.process_id).result()
        assert first != os.getpid()
        with pytest.raises(ZeroDivisionError, match="by nought"):
            processes.submit(calls.fail, ZeroDivisionError, "by nought").result()
        with pytest.raises(RuntimeError, match="Unreadable: one"):
            processes.submit(calls.fail, calls.Unreadable, "one", "two").result()
        assert processes.submit(calls.process_id).result() == first, "errors end no process"
        lost, next_one = processes.submit(calls.end, 3), processes.submit(calls.double, 4)
        with pytest.raises(ProcessEnded, match="ended with exit code 3"):
            lost.result()
        assert next_one.result() == 8, "another process took it"
        with pytest.raises(ProcessEnded, match="was ended by SIGKILL"):
            processes.submit(calls.dies).result()
    assert issubclass(ProcessEnded, BrokenExecutor)
    with pytest.raises(RuntimeError):
        processes.submit(calls.double, 1)


def test_what_takes_too_long_is_ended() -> None:
    with running(Processes(1, 1.0)) as processes:
        assert processes.submit(calls.double, 1).result() == 2
        with pytest.raises(CallTimeoutError, match="no answer in 1 s"):
            processes.submit(calls.sleep, 60).result()


def test_an_interrupt_waits_for_nobody() -> None:
    with pytest.raises(KeyboardInterrupt), running(Processes(1)) as processes:
        waiting = processes.submit(calls.sleep, 60)
        while not waiting.running():
            pass
        raise KeyboardInterrupt
    with pytest.raises(ProcessEnded):
        waiting.result(5)


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    with running(Processes(1)) as processes, pytest.raises(AttributeError):
        processes.submit(lambda: None)
