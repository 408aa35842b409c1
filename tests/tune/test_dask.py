"""A cluster of `dask.distributed`: worker processes, reached by the address of their scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import nki
from tests.tools.running import nki_json
from tests.tune import calls
from tests.tune.kernels import TILES, scale
from tests.tune.test_command import ARRAY, FILE


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as made:
        yield made


def test_a_cluster_finds_what_this_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("tune", f"{FILE}::tuned", *ARRAY, "--target", "trn2")
    monkeypatch.setenv("NKI_CACHE", "0")
    here = nki_json(*words)
    with cluster(1) as made:
        there = nki_json(*words, "--executor", f"dask:{made.scheduler_address}")
        with made.get_client() as client:
            (asked,) = client.run(lambda: "nki.tune.sent" in __import__("sys").modules).values()
    assert there == here and asked


def test_a_scheduler_that_is_not_there() -> None:
    pytest.importorskip("distributed")
    words = ("--executor", "dask:tcp://127.0.0.1:1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nki.tune.executors._CONNECT_SECONDS", 0.2)
        error = nki_json("tune", f"{FILE}::tuned", *ARRAY, *words, code=2)["error"]
    assert error["code"] == "tune.executor" and "there is no scheduler" in error["message"]


def ends_sometimes(a: Any, tile: int = 256, first: Any = None) -> Any:
    """A kernel that calls what a configuration gives it."""
    if first is not None:
        first()
    return scale(a, tile)


@pytest.mark.slow
def test_a_worker_that_ends_loses_one_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask begins it again three times, and with it whatever waited there."""
    monkeypatch.setenv("NKI_CACHE", "0")
    a = np.ones((128, 2048), np.float32)
    configs = [*({"tile": tile} for tile in TILES), {"tile": 512, "first": calls.dies}]
    with cluster(2) as made, made.get_client() as client:
        tuner = nki.autotune(configs=configs, executor=client.get_executor())(ends_sometimes)
        found = tuner.tune(a)
    expected = nki.autotune(configs=configs[:-1], processes=1)(ends_sometimes).tune(a)
    assert found.candidates[:-1] == expected.candidates
    assert found.candidates[-1].reason.startswith("tune.lost: ")
