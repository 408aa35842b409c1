"""Keys, settings, and what an entry holds."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from nki.core.dtypes import float32
from nki.core.errors import UsageError
from nki.core.source import Frame, Location
from nki.core.tensor import Buffer, MemoryRegion, whole
from nki.options import Options
from nki.spec.rule import Finding
from nki.store.cache import Cache
from nki.store.keys import _mlir_places, changed_since_import, installation, key_of
from nki.store.payload import Traced, pack, result_of, unpack
from nki.store.settings import DEFAULT_LIMIT_BYTES, settings


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Record:
    x: Any


DIFFERENT = [
    {}, {"a": None}, {"a": True}, {"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": b"1"}, {"a": [1]}, {"b": [1]}, {"a": {1}},
    {"a": {"b": 1}}, {"a": [["b", 1]]}, {"a": Colour.RED}, {"a": Colour.BLUE}, {"a": Record(1)}, {"a": Record(True)},
    {"a": 0.0}, {"a": -0.0}, {"a": [[], [1]]}, {"a": [[1], []]}, {"a": Options()}, {"a": Options(seed=1)},
    {"a": Options(disabled_rules=frozenset({"x"}))},
]  # fmt: skip


def test_different_parts_have_different_keys() -> None:
    keys = {key_of("kind", **parts) for parts in DIFFERENT} | {key_of("other"), key_of("other", a=1)}
    assert len(keys) == len(DIFFERENT) + 2
    assert all(len(key) == 64 and set(key) <= set("0123456789abcdef") for key in keys)


def test_order_does_not_matter_where_it_has_no_meaning() -> None:
    assert key_of("k", a=1, b=2) == key_of("k", b=2, a=1)
    assert key_of("k", a={"x": 1, "y": 2}) == key_of("k", a={"y": 2, "x": 1})
    assert key_of("k", a={"x", "y", "z"}) == key_of("k", a={"z", "y", "x"})


def test_what_could_be_written_in_two_ways_is_no_part_of_a_key() -> None:
    with pytest.raises(TypeError, match="object cannot be part of a key"):
        key_of("k", a=object())


def test_keys_are_the_same_in_every_process_and_tell_installations_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from nki.store.keys import key_of; print(key_of('k', a={'x', 'y', 'z'}, b=1.5))"
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONHASHSEED": "5"}
    done = subprocess.run([sys.executable, "-c", program], cwd=root, env=env, capture_output=True, check=True)
    here = key_of("k", a={"x", "y", "z"}, b=1.5)
    assert done.stdout.decode().strip() == here
    monkeypatch.setattr("nki.store.keys.installation", lambda: installation() + ".")
    assert key_of("k", a={"x", "y", "z"}, b=1.5) != here


def test_an_installation_is_told_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, bindings = tmp_path / "site" / "nki", tmp_path / "site" / "torch_mlir"
    (package / "isa").mkdir(parents=True)
    bindings.mkdir()
    (bindings / "__init__.py").touch()
    (package / "isa" / "copy.py").write_text("1")
    monkeypatch.setattr("nki.store.keys._PACKAGE", package)
    monkeypatch.setattr("nki.store.keys.version", lambda: "a version")
    monkeypatch.setattr("nki.store.keys.IMPORTED_NS", time.time_ns() + 10**12)  # processes that start later
    monkeypatch.setattr("nki.store.keys._mlir_places", _mlir_places.__wrapped__)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "torch_mlir", raising=False)  # an imported module is where it was found
    tell = installation.__wrapped__
    seen = [tell()]
    assert tell() == seen[0]
    (package / "isa" / "copy.py").write_text("2")
    seen.append(tell())
    (package / "target.toml").write_text("2")
    seen.append(tell())
    (tmp_path / "site" / "torch_mlir-7.dist-info").mkdir()
    seen.append(tell())
    assert "torch_mlir-7.dist-info" in seen[-1]
    assert "a version" not in seen[-1]
    (package / "VERSION").write_text("any")
    seen.append(tell())
    assert "a version" in seen[-1]
    assert len(set(seen)) == len(seen)


def test_a_package_that_changed_after_its_import_shares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process imported cannot be told from files that somebody wrote later, with an older date even."""
    package = tmp_path / "nki"
    (package / "isa").mkdir(parents=True)
    (package / "isa" / "copy.py").write_text("1")
    monkeypatch.setattr("nki.store.keys._PACKAGE", package)
    monkeypatch.setattr("nki.store.keys._mlir_places", tuple)
    cache, key = Cache(tmp_path / "cache", 10_000), "0" * 64
    time.sleep(0.05)
    monkeypatch.setattr("nki.store.keys.IMPORTED_NS", time.time_ns())
    assert not changed_since_import() and cache.put(key, b"1")
    time.sleep(0.05)
    (package / "isa" / "copy.py").write_text("2")
    os.utime(package / "isa" / "copy.py", (1, 1))
    assert changed_since_import() and not cache.put(key, b"2")
    assert cache.get(key) == b"1"
    assert installation.__wrapped__() != installation.__wrapped__()


def test_settings(tmp_path: Path) -> None:
    default = settings({})
    assert (default.enabled, default.limit_bytes) == (True, DEFAULT_LIMIT_BYTES)
    assert default.directory.name == "nki" and default.directory.is_absolute()
    given = settings({"NKI_CACHE": "0", "NKI_CACHE_DIR": str(tmp_path), "NKI_CACHE_LIMIT": "1.5 MB"})
    assert (given.enabled, given.directory, given.limit_bytes) == (False, tmp_path, 1_500_000)
    assert given.cache() is None
    assert settings({"NKI_CACHE_DIR": str(tmp_path)}).cache() is settings({"NKI_CACHE_DIR": str(tmp_path)}).cache()


@pytest.mark.parametrize(
    ("text", "nbytes"), [("0", 0), ("123", 123), ("4096B", 4096), ("2KiB", 2048), ("2kb", 2000), ("1gib", 1 << 30)]
)
def test_sizes(text: str, nbytes: int) -> None:
    assert settings({"NKI_CACHE_LIMIT": text}).limit_bytes == nbytes


@pytest.mark.parametrize(
    ("name", "value"), [("NKI_CACHE", "maybe"), ("NKI_CACHE_LIMIT", "much"), ("NKI_CACHE_LIMIT", "-1")]
)
def test_settings_that_make_no_sense(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        settings({name: value})


WHERE = Location((Frame("kernel.py", "kernel", 3, 4, 5, 6), Frame("kernel.py", "outer", 9)))
FINDING = Finding(
    "a.b", "warning", "message", "rule", "source", "fix", WHERE, MappingProxyType({"n": 1, "shape": (1, [2.5, None])})
)


def _outputs(count: int) -> list[Any]:
    return [whole(Buffer(i, f"o{i}", MemoryRegion.shared_hbm, (2, 3), float32)) for i in range(count)]


def test_an_entry_comes_back() -> None:
    a, b, c = _outputs(3)
    tree = (a, [b, None, {"x": c, 2: 1.5}], "text", True)
    traced = Traced("artifact", "hash", tree, (FINDING,), frozenset({0, 2}), [{"name": "k"}])
    data = pack(traced)
    assert data is not None
    json.loads(data)
    found = unpack(data)
    assert found is not None
    assert (found.artifact, found.kernel_hash) == ("artifact", "hash")
    assert (found.written, found.outlines) == ({0, 2}, [{"name": "k"}])
    fresh = _outputs(3)
    again = result_of(found.result, fresh)
    assert again == (fresh[0], [fresh[1], None, {"x": fresh[2], 2: 1.5}], "text", True)
    assert again[1][2]["x"].buffer is fresh[2].buffer
    (finding,) = found.findings
    assert finding == FINDING
    assert finding.location == WHERE and finding.facts["shape"] == (1, [2.5, None])


def test_what_has_no_json_is_not_packed() -> None:
    pair = namedtuple("pair", "x y")
    assert pack(Traced("a", "h", pair(*_outputs(2)), ())) is None
    odd = Finding("a.b", "warning", "m", "r", "s", "f", WHERE, MappingProxyType({"o": object()}))
    assert pack(Traced("a", "h", None, (odd,))) is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"\xff", b'{"artifact":"a","kernel_hash":"h","result":1,"findings":[{}]}']
)
def test_what_is_no_entry_is_none(data: bytes) -> None:
    assert unpack(data) is None
