"""The cache on disk: what it gives back, what it bounds, and what it survives."""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from nki.core.errors import UsageError
from nki.report import NkiWarning
from nki.store.cache import FORMAT, Cache
from nki.store.files import locked

LIMIT = 1 << 30


def key(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def payload(text: object, size: int = 1000) -> bytes:
    """Bytes that say whose they are, so that a mixture of two is noticed."""
    one = hashlib.sha256(f"payload {text}".encode()).digest()
    return (one * (size // len(one) + 1))[:size]


def files(path: Path) -> list[Path]:
    return sorted((path / FORMAT).glob("*.nkic"))


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LIMIT)
    assert cache.get(key(1)) is None
    assert cache.put(key(1), b"") and cache.put(key(2), payload(2, 100_000))
    for other in (cache, Cache(tmp_path, LIMIT)):
        assert other.get(key(1)) == b""
        assert other.get(key(2)) == payload(2, 100_000)
    assert cache.put(key(1), b"new")
    assert cache.get(key(1)) == b"new"


def test_info_and_clear(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "not" / "there", LIMIT)
    assert (cache.info().entries, cache.info().nbytes) == (0, 0)
    assert not (tmp_path / "not").exists(), "asking makes nothing"
    for i in range(3):
        cache.put(key(i), payload(i))
    info = cache.info()
    assert (info.entries, info.limit_bytes) == (3, LIMIT)
    assert info.nbytes == sum(file.stat().st_size for file in files(tmp_path / "not" / "there"))
    assert 0 < info.oldest_ns <= info.newest_ns <= time.time_ns() + 10**9
    assert cache.clear().entries == 3
    assert (cache.info().entries, cache.get(key(0))) == (0, None)


def test_clear_leaves_what_is_not_the_caches(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LIMIT)
    cache.put(key(1), b"x")
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / FORMAT / "mine.txt").write_text("mine")
    cache.clear()
    assert (tmp_path / "mine.txt").exists() and (tmp_path / FORMAT / "mine.txt").exists()


@pytest.mark.parametrize("wrong", ["", "abc", "../" + "0" * 61, "0" * 63 + "G", "0" * 65, "0" * 64 + "\n"])
def test_keys_are_digests(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no key of the cache"):
        Cache(tmp_path, LIMIT).get(wrong)


def test_every_flipped_byte_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LIMIT)
    cache.put(key(1), b"some payload")
    (file,) = files(tmp_path)
    good = file.read_bytes()
    for position in range(len(good)):
        for flip in (0x01, 0x80):
            bad = bytearray(good)
            bad[position] ^= flip
            file.write_bytes(bad)
            assert cache.get(key(1)) is None, position
            assert not file.exists(), "a damaged entry is removed"
    file.write_bytes(good)
    assert cache.get(key(1)) == b"some payload"


def test_every_truncation_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LIMIT)
    cache.put(key(1), b"some payload")
    (file,) = files(tmp_path)
    good = file.read_bytes()
    for bad in (*(good[:length] for length in range(len(good))), good + b"\0"):
        file.write_bytes(bad)
        assert cache.get(key(1)) is None
        assert not file.exists()


def test_an_entry_under_another_name_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LIMIT)
    cache.put(key(1), b"one")
    (file,) = files(tmp_path)
    file.rename(file.with_name(key(2) + ".nkic"))
    assert cache.get(key(2)) is None


def test_a_link_a_directory_or_a_pipe_in_place_of_an_entry_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path, LIMIT)
    cache.put(key(1), b"one")
    (file,) = files(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert cache.get(key(1)) is None
    assert elsewhere.exists() and not file.is_symlink()
    os.mkfifo(file)
    assert cache.get(key(1)) is None
    assert cache.put(key(1), b"again") and cache.get(key(1)) == b"again"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 100_000)
    for i in range(9):
        cache.put(key(i), payload(i, 10_000))
        os.utime(tmp_path / FORMAT / f"{key(i)}.nkic", (i + 1, i + 1))
    assert cache.get(key(0)) is not None  # now the most recently used
    cache.put(key("new"), payload("new", 15_000))
    assert cache.info().nbytes <= 100_000
    assert cache.get(key(0)) == payload(0, 10_000)
    assert cache.get(key("new")) == payload("new", 15_000)
    assert cache.get(key(1)) is None
    assert cache.get(key(8)) is not None


def test_the_bound_holds_after_every_put(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 50_000)
    for i in range(60):
        cache.put(key(i), payload(i, 500 + 300 * (i % 7)))
        assert cache.info().nbytes <= 50_000
        assert cache.get(key(i)) == payload(i, 500 + 300 * (i % 7)), "the newest stays"
    assert cache.info().entries > 15


def test_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10_000)
    cache.put(key(1), payload(1, 1000))
    assert not cache.put(key(2), payload(2, 10_000))
    assert cache.get(key(2)) is None
    assert cache.get(key(1)) is not None, "and nothing makes room for it"


def test_what_a_dead_process_left_goes_when_it_is_old(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 20_000)
    cache.put(key(0), b"")
    old, young = tmp_path / FORMAT / "old.part", tmp_path / FORMAT / "young.part"
    old.write_bytes(bytes(9000))
    young.write_bytes(bytes(4000))
    os.utime(old, (1, 1))
    cache.put(key(1), payload(1, 10))
    assert not old.exists() and young.exists(), "also while there is room"
    assert cache.get(key(0)) is not None and cache.get(key(1)) is not None


# --- directories


def refused(cache: Cache, says: str) -> None:
    """One warning, and then a cache that holds nothing and raises nothing."""
    with pytest.warns(NkiWarning, match=says) as caught:
        assert cache.put(key(1), b"x") is False
    assert caught[0].message.finding.code == "cache.unusable"  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(key(1)) is None
        assert cache.put(key(1), b"x") is False


def test_directories_and_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "a" / "b", LIMIT).put(key(1), b"x")
    finally:
        os.umask(before)
    made = tmp_path / "a" / "b" / FORMAT
    assert made.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in made.iterdir())


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720])
def test_a_directory_that_others_may_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / FORMAT).mkdir()
    (tmp_path / FORMAT).chmod(mode)
    refused(Cache(tmp_path, LIMIT), "others may write")
    assert not files(tmp_path)


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(0o700)
    (tmp_path / FORMAT).symlink_to(tmp_path / "other")
    refused(Cache(tmp_path, LIMIT), "link")
    assert not list((tmp_path / "other").iterdir())


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / FORMAT).write_text("")
    refused(Cache(tmp_path, LIMIT), "not a directory")


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path, LIMIT).put(key(1), b"x")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    refused(Cache(tmp_path, LIMIT), "belongs to user")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(Cache(tmp_path / "file" / "below", LIMIT), "kernels are not kept on disk")


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(Cache(tmp_path, LIMIT), "No space left")
    assert not list((tmp_path / FORMAT).iterdir()), "nothing unfinished is left"


# --- processes


def _work(directory: Path, worker: int, shared: bool, rounds: int, failures: multiprocessing.Queue[str]) -> None:
    cache = Cache(directory, 200_000)
    for i in range(rounds):
        name = f"{i % 5}" if shared else f"{worker} {i}"
        size = 2000 + 1000 * (i % 5)
        cache.put(key(name), payload(name, size))
        for other in range(5):
            found = cache.get(key(other))
            if found not in (None, payload(other, 2000 + 1000 * other)):
                failures.put(f"{worker}: entry {other} is mixed up")
        if cache.get(key(name)) not in (None, payload(name, size)):
            failures.put(f"{worker}: {name} is mixed up")


@pytest.mark.parametrize("shared", [True, False])
def test_processes_at_once(shared: bool, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    failures: multiprocessing.Queue[str] = context.Queue()
    processes = [context.Process(target=_work, args=(tmp_path, i, shared, 30, failures)) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(250)
        assert process.exitcode == 0
    assert failures.empty(), failures.get()
    cache = Cache(tmp_path, 200_000)
    assert cache.info().nbytes <= 200_000
    assert not list((tmp_path / FORMAT).glob("*.part"))
    if shared:
        assert [cache.get(key(i)) for i in range(5)] == [payload(i, 2000 + 1000 * i) for i in range(5)]


_WRITER = """
import sys, pathlib
from tests.store.test_cache import Cache, key, payload
cache = Cache(pathlib.Path(sys.argv[1]), 1 << 30)
print("ready", flush=True)
for i in range(10**6):
    cache.put(key(i % 3), payload(i % 3, 3_000_000))
"""


def kill_while_it_writes(process: subprocess.Popen[bytes], directory: Path, left: set[Path]) -> None:
    """It is stopped again and again until it is found with a file that it has not finished; others left some."""
    end = time.monotonic() + 60
    try:
        while True:
            process.send_signal(signal.SIGSTOP)
            assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
            if set(directory.glob("*.part")) - left:
                return
            assert time.monotonic() < end, "it writes nothing"
            process.send_signal(signal.SIGCONT)
            time.sleep(0.003)
    finally:
        process.kill()


def test_a_process_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    """Again and again at other moments: what is read afterwards is complete or not there."""
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    left: set[Path] = set()
    for attempt in range(4):
        command = [sys.executable, "-c", _WRITER, str(tmp_path)]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(0.02 + 0.01 * attempt)
            kill_while_it_writes(process, tmp_path / FORMAT, left)
        left = set((tmp_path / FORMAT).glob("*.part"))
        assert len(left) == attempt + 1
        cache = Cache(tmp_path, 1 << 30)
        for i in range(3):
            assert cache.get(key(i)) in (None, payload(i, 3_000_000))
    assert cache.put(key(0), payload(0)) and cache.get(key(0)) == payload(0)


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    taken: list[int] = []
    with locked(directory):
        (handle,) = (int(name) for name in os.listdir("/proc/self/fd") if _is(name, tmp_path / "lock"))
        taken.append(os.dup(handle))  # as a forked process has it
    other = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for handle in (directory, other, *taken):
        os.close(handle)


def _is(descriptor: str, file: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == str(file)
    except OSError:
        return False
