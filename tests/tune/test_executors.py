"""Executors by the names of a command line."""

from __future__ import annotations

import sys
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from nki.core.errors import UsageError
from nki.tune.executors import named_executor
from nki.tune.processes import Processes
from tests.tune.executors import Pickling


def nobody(told: str) -> None:
    raise AssertionError(told)


@pytest.mark.parametrize(
    "text,kind",
    [
        ("threads", ThreadPoolExecutor),
        ("threads:3", ThreadPoolExecutor),
        ("processes", Processes),
        ("processes:3", Processes),
        ("tests.tune.executors:made", Pickling),
        ("tests.tune.executors:Pickling", Pickling),
    ],
)
def test_names(text: str, kind: type[Executor]) -> None:
    with named_executor(text, nobody) as executor:
        assert type(executor) is kind
    with pytest.raises(RuntimeError):
        executor.submit(int, 3)


@pytest.mark.parametrize(
    "text,told",
    [
        ("", "there is no executor of that name"),
        ("pool", "there is no executor of that name"),
        ("dask:", "there is no executor of that name"),
        ("threads:0", "'0' is no number of workers"),
        ("processes:many", "'many' is no number of workers"),
        ("nowhere_to_be_found:x", "ModuleNotFoundError"),
        ("tests.tune.executors:gone", "AttributeError"),
        ("tests.tune.executors:wrong", "gives a str"),
        ("tests.tune.calls:end", "TypeError"),
    ],
)
def test_what_names_none(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught, named_executor(text, nobody):
        pass
    assert caught.value.code == "tune.executor" and told in caught.value.message and caught.value.fix


def test_dask_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError) as caught, named_executor("dask:tcp://127.0.0.1:1", nobody):
        pass
    assert caught.value.code == "tune.extra" and "cluster" in caught.value.fix
