"""Who asks the timing model changes no answer; a worker that cannot be asked takes one configuration along at most."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nki
import nki.tune.ask
import nki.tune.sent
from nki.core.errors import LaunchError
from nki.options import Options
from nki.report import NkiWarning
from nki.tune.ask import asking
from nki.tune.job import Answers, TuningJob
from nki.tune.processes import CallTimeoutError
from nki.tune.sent import NotSentError, SentJob
from nki.tune.settings import Settings
from nki.tune.tuned import Candidate
from tests.tune import calls, kernels
from tests.tune.executors import Breaking, Pickling
from tests.tune.kernels import TILES, scale

A = np.random.default_rng(2).standard_normal((128, 2048), np.float32)
CONFIGS = [{"tile": tile} for tile in TILES] + [{"tile": 3000}, {"tile": 512, "fault": "exits"}]


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CACHE", "0")
    nki.tune.sent._answers.cache_clear()


def table(executor: Executor | None, **more: Any) -> tuple[Candidate, ...]:
    more = {"configs": CONFIGS, **more} if executor is not None else {"configs": CONFIGS, "processes": 1, **more}
    return nki.autotune(executor=executor, **more)(scale).tune(A).candidates


def refused(executor: Executor, kernel: Any = scale) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        nki.autotune(configs=CONFIGS, executor=executor)(kernel).tune(A)
    assert caught.value.code == "tune.executor" and caught.value.fix
    return caught.value


def job(kernel: Any = scale, configs: tuple[nki.Config, ...] = kernels.tuned.configs) -> TuningJob:
    return TuningJob(nki.jit(kernel).launch(), {"a": A}, "trn2", configs, Options())


@contextmanager
def in_place_of_processes(monkeypatch: pytest.MonkeyPatch, executor: Pickling) -> Iterator[None]:
    """`executor` where this package begins processes of its own."""
    executor.kill_workers = executor.shutdown  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setattr(nki.tune.ask, "Processes", lambda *_: executor)
        yield


def test_the_table_is_the_same_whoever_is_asked() -> None:
    expected = table(None)
    assert {each.state for each in expected} == {"chosen", "timed", "pruned", "failed"}
    with ThreadPoolExecutor(4) as threads:
        assert table(threads) == expected
        assert threads.submit(int, "3").result() == 3, "it is not shut down"
    sending = Pickling()
    assert table(sending) == expected
    assert {(question, attempt) for question, _, attempt in sending.calls} == {("bound", 0), ("time", 0)}


def test_processes_answer_as_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second half this process must not be asked."""
    asked: list[Any] = []
    numbers = list(range(len(kernels.tuned.configs)))
    with asking(job(), Settings(processes=1), lambda *what: asked.append(what)) as ask:
        expected = [ask("bound", numbers), ask("time", numbers)]

    def refuse(*_: Any) -> Any:
        raise AssertionError("asked here")

    monkeypatch.setattr(Answers, "of", refuse)
    told: list[Any] = []
    with asking(job(), Settings(processes=2, timeout=300), lambda *what: told.append(what)) as ask:
        assert [ask("bound", numbers), ask("time", numbers)] == expected
    assert sorted(told) == sorted(asked)


def test_a_worker_that_ends_loses_one_configuration() -> None:
    expected = table(None)
    found = table(Pickling(lost=lambda question, number, attempt: number == 5))
    (lost,) = [(mine, theirs) for mine, theirs in zip(found, expected, strict=True) if mine != theirs]
    assert lost[0].state == "failed" and lost[0].reason.startswith("tune.lost: the worker that was asked about it")
    once = Pickling(lost=lambda question, number, attempt: number % 2 == 1 and not attempt)
    assert table(once) == expected, "who is lost beside others is asked again alone"


def test_a_pool_that_breaks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(question: str, number: int, attempt: int) -> bool:
        return number == 2

    expected, own = table(None), Pickling(ends)
    with in_place_of_processes(monkeypatch, own), pytest.warns(NkiWarning, match="tune.executor-broken"):
        found = table(Breaking(ends))
    differs = [mine != theirs for mine, theirs in zip(found, expected, strict=True)]
    assert differs == [number == 2 for number in range(len(expected))]
    assert found[2].reason.startswith("tune.lost") and own.calls


def test_a_default_that_ends_its_worker_is_an_error() -> None:
    """It is not asked here, where it would end the caller."""
    with pytest.raises(LaunchError) as caught:
        table(Pickling(lost=lambda question, number, attempt: number == 0))
    assert caught.value.code == "tune.lost" and "default configuration of scale" in caught.value.message


def test_a_configuration_that_takes_too_long_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(question: str, number: int, attempt: int) -> bool:
        if number == 1:
            raise CallTimeoutError("no answer in 2 s")
        return False

    own = Pickling(late)
    with in_place_of_processes(monkeypatch, own):
        found = table(None, processes=2, timeout=2)
    assert (found[1].state, found[1].reason) == ("failed", "tune.timeout: no answer in 2 s")
    assert all(attempt == 0 for _, _, attempt in own.calls), "nobody waits for it twice"


def test_executors_that_take_nothing() -> None:
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    assert "cannot schedule new futures after shutdown" in refused(closed).message
    broken = ThreadPoolExecutor(1, initializer=calls.fail, initargs=(ZeroDivisionError,))
    assert (
        "the executor broke (BrokenThreadPool: "
        in refused(broken, lambda a, tile=256, fault="": scale(a, tile)).message
    )
    assert "answers nothing: KilledWorker" in refused(Pickling(lost=lambda *_: True)).message


def test_futures_are_held_until_the_search_has_ended() -> None:
    """Dask cancels what nobody holds, also while it computes that anew, and its worker waits for ever then."""
    futures: list[weakref.ref[Future[Any]]] = []

    class Watched(Pickling):
        def submit(self, *what: Any) -> Future[Any]:
            future = super().submit(*what)
            futures.append(weakref.ref(future))
            return future

    with asking(job(), Settings(executor=Watched()), lambda *_: None) as ask:
        ask("bound", [0, 1])
        gc.collect()
        assert [each() is not None for each in futures] == [True, True]


def test_an_executor_that_lost_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The futures of a Dask client are never done then."""

    class Lost(Pickling):
        _client = SimpleNamespace(status="closed")

        def submit(self, *_: Any) -> Future[Any]:
            return Future()

    monkeypatch.setattr(nki.tune.ask, "_LOOK_SECONDS", 0.01)
    assert "lost its scheduler" in refused(Lost()).message


def test_a_kernel_that_other_processes_cannot_have() -> None:
    def kernel(a: Any, tile: int = 256, fault: str = "") -> Any:
        return scale(a, tile)

    with ThreadPoolExecutor(2) as threads:
        assert nki.autotune(configs=CONFIGS, executor=threads)(kernel).tune(A).chosen.label == "tile=512"
    assert "is a function in a function" in refused(Pickling(), kernel).message
    with pytest.raises(LaunchError) as caught:
        nki.autotune(configs=CONFIGS, timeout=9)(kernel).tune(A)
    assert caught.value.code == "tune.executor"
    with pytest.raises(NotSentError):
        _ = SentJob(job(kernel), Answers(job(kernel))).pickled


@pytest.mark.parametrize("what", ["kernel", "installation", "module"])
def test_a_worker_with_something_else(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor's is an error; in the place of this package's own processes this one answers."""

    class Elsewhere(Pickling):
        def carried_out(self, sent: bytes, call: tuple[Any, ...]) -> Any:
            with monkeypatch.context() as there:
                match what:
                    case "kernel":
                        there.setattr(kernels, "FACTOR", 5.0)
                    case "installation":
                        there.setattr(nki.tune.sent, "installation", lambda: "another")
                    case "module":
                        there.delattr(kernels, "scale")
                return super().carried_out(sent, call)

    told = refused(Elsewhere()).message
    assert {"kernel": "imports another scale", "installation": "another installation", "module": "cannot import"}[
        what
    ] in told
    with in_place_of_processes(monkeypatch, Elsewhere()):
        assert table(None, processes=2) == table(None)


def test_an_interrupt_leaves_nothing_to_do() -> None:
    """What waits in the executor of somebody is cancelled, and the executor is not ended."""
    futures: list[Future[Any]] = []

    class Watched(ThreadPoolExecutor):
        def submit(self, *what: Any) -> Any:
            futures.append(super().submit(*what))
            return futures[-1]

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with Watched(1) as threads:
        with pytest.raises(KeyboardInterrupt), asking(job(), Settings(executor=threads), interrupt) as ask:
            ask("bound", [*range(6)] * 20)
        assert sum(each.cancelled() for each in futures) > 60
        assert threads.submit(int, "3").result() == 3


def test_the_kernel_of_a_module_gets_an_executor() -> None:
    sending = Pickling()
    kernel = kernels.tuned.with_executor(sending)
    assert kernel.tune(A).chosen.label == "tile=512" and sending.calls
    assert kernel.configs == kernels.tuned.configs
