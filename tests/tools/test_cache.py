"""``nki cache``: what it shows and what it removes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nki.store.settings import settings
from nki.tools.cache import command


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(command, list(words), env={"NKI_CACHE": "1", **environment})


def fill(path: Path) -> None:
    cache = settings({"NKI_CACHE_DIR": str(path)}).cache()
    assert cache is not None
    for i in range(3):
        cache.put(f"{i:064x}", bytes(2000))


def test_info(tmp_path: Path) -> None:
    fill(tmp_path)
    shown = run("info", NKI_CACHE_DIR=str(tmp_path), NKI_CACHE_LIMIT="1MiB")
    assert shown.exit_code == 0
    assert str(tmp_path) in shown.output
    assert "entries    3" in shown.output and "6.0 KiB of 1.0 MiB" in shown.output
    assert "switched off" in run("info", NKI_CACHE_DIR=str(tmp_path), NKI_CACHE="0").output


def test_info_as_json(tmp_path: Path) -> None:
    fill(tmp_path)
    found = json.loads(run("info", "--json", NKI_CACHE_DIR=str(tmp_path)).output)
    assert (found["enabled"], found["entries"], found["limit_bytes"]) == (True, 3, 1 << 30)
    assert 6000 < found["bytes"] < 7000
    empty = json.loads(run("info", "--json", NKI_CACHE_DIR=str(tmp_path / "empty")).output)
    assert (empty["entries"], empty["bytes"], empty["oldest_ns"]) == (0, 0, 0)


def test_clear(tmp_path: Path) -> None:
    fill(tmp_path)
    assert "removed 3 entries" in run("clear", NKI_CACHE_DIR=str(tmp_path)).output
    fill(tmp_path)
    assert json.loads(run("clear", "--json", NKI_CACHE_DIR=str(tmp_path), NKI_CACHE="0").output)["removed"] == 3
    assert json.loads(run("info", "--json", NKI_CACHE_DIR=str(tmp_path)).output)["entries"] == 0


@pytest.mark.parametrize("words", [("info",), ("clear",), ("info", "--json")])
def test_a_wrong_setting_is_an_error_of_usage(words: tuple[str, ...]) -> None:
    shown = run(*words, NKI_CACHE_LIMIT="much")
    assert shown.exit_code == 2
    assert "NKI_CACHE_LIMIT" in shown.output + shown.stderr
