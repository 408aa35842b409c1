"""Objects on disk: what is trusted, and what is done about the rest."""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from nki.native import cpu_features
from nki.native.objects.object_cache import SHARE, Objects, object_key
from nki.report import NkiWarning

LIMIT = 1 << 24
KEY = object_key("a")
DATA = bytes(range(256)) * 5


def kept(path: Path) -> tuple[Objects, Path]:
    """Objects with one entry, and its file."""
    objects = Objects(path, LIMIT)
    assert objects.put(KEY, DATA)
    (file,) = objects.directory.glob(f"{KEY}*")
    return objects, file


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    objects, _ = kept(tmp_path)
    for each in (objects, Objects(tmp_path, LIMIT)):
        assert each.get(KEY) == DATA and KEY in each
        assert each.get(object_key("b")) is None and object_key("b") not in each


def test_others_have_no_access(tmp_path: Path) -> None:
    """Whatever the mask of the process is."""
    before = os.umask(0)
    try:
        _, file = kept(tmp_path / "x")
    finally:
        os.umask(before)
    places = [file, file.parent, file.parent.parent]
    assert [stat.S_IMODE(place.stat().st_mode) for place in places] == [0o600, 0o700, 0o700]
    assert file.parent.parent.parent == tmp_path / "x"


def test_keys_depend_on_name_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {object_key("a"), object_key("b")}
    monkeypatch.setattr(cpu_features, "digest", lambda: "another")
    assert len(keys | {object_key("a")}) == 3


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    objects, file = kept(tmp_path)
    whole = file.read_bytes()
    for position in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        file.write_bytes(changed)
        file.chmod(0o600)
        assert objects.get(KEY) is None
        assert not file.exists(), "it is removed, and can be written anew"


@pytest.mark.parametrize("size", [0, 1, 5, 36, 37, 38, 1000])
def test_a_truncated_file_is_no_object(size: int, tmp_path: Path) -> None:
    objects, file = kept(tmp_path)
    file.write_bytes(file.read_bytes()[:size])
    assert objects.get(KEY) is None


def test_another_name_is_noticed(tmp_path: Path) -> None:
    objects, file = kept(tmp_path)
    other = object_key("b")
    file.rename(file.with_name(file.name.replace(KEY, other)))
    assert objects.get(other) is None


def by_mode(file: Path) -> None:
    file.chmod(0o640)


def by_link(file: Path) -> None:
    target = file.with_name("elsewhere")
    file.rename(target)
    file.symlink_to(target)


def by_hard_link(file: Path) -> None:
    os.link(file, file.with_name("second"))


def by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def by_owner(file: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(file, 12345, 12345)


@pytest.mark.parametrize("spoil", [by_mode, by_link, by_hard_link, by_pipe, by_owner])
def test_a_file_in_doubt_is_ignored_and_written_anew(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    objects, file = kept(tmp_path)
    spoil(file)
    assert objects.get(KEY) is None and KEY not in objects
    assert objects.put(KEY, DATA + b"new")
    assert objects.get(KEY) == DATA + b"new"
    assert stat.S_IMODE(file.lstat().st_mode) == 0o600 and stat.S_ISREG(file.lstat().st_mode)


@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize("spoil", ["readable", "writable", "link", "file", "owner"])
def test_a_directory_in_doubt_is_not_used(spoil: str, above: int, tmp_path: Path) -> None:
    _, file = kept(tmp_path)
    place = file.parents[above]
    if spoil in ("readable", "writable"):
        place.chmod(0o750 if spoil == "readable" else 0o770)
    elif spoil == "owner":
        if os.geteuid():
            pytest.skip("only root gives directories away")
        os.chown(place, 12345, 12345)
    else:
        aside = tmp_path / "aside"
        place.rename(aside)
        if spoil == "link":
            place.symlink_to(aside)
        else:
            place.write_text("")
    objects = Objects(tmp_path, LIMIT)
    with pytest.warns(NkiWarning, match="native code is not kept on disk"):
        assert objects.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KEY not in objects and objects.get(KEY) is None and not objects.put(KEY, DATA)


def test_the_directory_may_go_away_meanwhile(tmp_path: Path) -> None:
    objects, file = kept(tmp_path)
    shutil.rmtree(file.parents[1])
    assert objects.get(KEY) is None
    assert objects.put(KEY, DATA) and objects.get(KEY) == DATA


def test_size_is_bounded(tmp_path: Path) -> None:
    objects = Objects(tmp_path, 100_000 * SHARE)
    assert not objects.put(KEY, bytes(100_000)), "larger than everything may be"
    for i in range(30):
        assert objects.put(object_key(str(i)), bytes(10_000))
        assert sum(file.stat().st_size for file in objects.directory.iterdir()) <= 100_000
    assert objects.get(object_key("29")) == bytes(10_000)
    assert objects.get(object_key("0")) is None
