"""Running a candidate's process: started, fed, limited, and listened to, with nothing of it believed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nki.tools.grade.process.confine import Isolation, Limits
from nki.tools.grade.process.files import Files
from nki.tools.grade.process.task import Task

_TURN = 0.1  # seconds after which the folder is looked at
_SAID = 4000  # characters of what it printed that are kept
_SET_DUMPABLE, _GET_DUMPABLE = 4, 3  # of prctl
_KEPT = ("LD_LIBRARY_PATH", "PATH")


@dataclass(slots=True)
class Heard:
    """What a process left behind.

    Attributes:
        isolation: what it gave up before it ran the candidate; None if it did not come so far.
        messages: all that it wrote after that, in order, as objects; their contents may be anything.
        ended: "done", or why there is no more: "time", "files", "answer", "garbage", "signal NAME" or "code N".
        seconds, cpu: wall time and CPU time.
        memory: most bytes that were resident.
        said: the end of what it printed.
    """

    isolation: Isolation | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    said: str = ""


def run_process(files: Files, task: Task, limits: Limits) -> Heard:
    """Trace a kernel in a process of its own, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="nki-grade-") as place:
        root = Path(place).resolve()
        folder, printed = root / "candidate", root / "printed"
        folder.mkdir()
        files.copy_to(folder)
        heard = _heard(folder, printed, json.dumps({"limits": asdict(limits), "task": task.to_json()}).encode(), limits)
        heard.messages = _placed(heard.messages, str(folder), str(files.root))
        return heard


def _heard(folder: Path, printed: Path, asked: bytes, limits: Limits) -> Heard:
    reading, writing = os.pipe()
    try:
        with printed.open("wb") as out:
            process = _start(folder, writing, out)
            os.close(writing)
            writing = -1
            started = time.monotonic()
            with contextlib.suppress(OSError):  # it may have ended
                assert process.stdin is not None, "a pipe was asked for"
                process.stdin.write(asked)
                process.stdin.close()
            data, ended = _listen(process, reading, folder, started, limits)
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    heard = heard_of(data, ended or _ended(process.returncode))
    heard.seconds = time.monotonic() - started
    heard.cpu, heard.memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    with printed.open("rb") as file:
        file.seek(max(0, printed.stat().st_size - _SAID))
        heard.said = file.read().decode("utf-8", "replace")
    return heard


def _start(folder: Path, writing: int, out: Any) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).resolve().parents[4])
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    quiet = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    places = {"HOME": str(folder), "TMPDIR": str(folder), "NKI_CACHE_DIR": str(folder / ".cache")}
    words = [sys.executable, "-P", "-B", "-m", "nki.tools.grade.process.worker", str(writing), str(folder)]
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=out,
        cwd=folder,
        env={**kept, **quiet, **places, "PYTHONPATH": package, "PYTHONHASHSEED": "random", "LANG": "C.UTF-8"},
        pass_fds=(writing,),
        start_new_session=True,
    )


def _listen(
    process: subprocess.Popen[bytes], reading: int, folder: Path, started: float, limits: Limits
) -> tuple[bytes, str]:
    """What it wrote until it ended, and why it was ended; empty if it ended itself."""
    parts: list[bytes] = []
    size, last = 0, False
    while True:
        if select.select([reading], [], [], _TURN)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > limits.answer:
                return b"", "answer"
            continue
        if last:
            break
        # Somebody else may hold the pipe open; what was written before the end is read once more.
        last = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if time.monotonic() - started > limits.seconds:
            return b"".join(parts), "time"
        if _is_full(folder, limits):
            return b"".join(parts), "files"
    while time.monotonic() - started <= limits.seconds:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return b"".join(parts), ""
        time.sleep(0.002)
    return b"".join(parts), "time"


def _is_full(folder: Path, limits: Limits) -> bool:
    number, size = 0, 0
    for place, _, names in os.walk(folder):
        number += len(names) + 1
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
        if number > limits.files or size > limits.file:
            return True
    return False


def _ended(code: int) -> str:
    if code >= 0:
        return f"code {code}" if code else ""
    number = -code
    return "time" if number in (signal.SIGXCPU, signal.SIGKILL) else f"signal {signal.Signals(number).name}"


def heard_of(data: bytes, ended: str) -> Heard:
    """The messages in what a process wrote; the last line may be cut off where the process was ended.

    Args:
        ended: why it was ended, or how it ended; empty for an end without a fault.
    """
    heard = Heard()
    lines = data.split(b"\n")
    cut = lines.pop()
    for line in lines:
        try:
            message = json.loads(line, parse_constant=_not_a_number)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            heard.ended = "garbage"
            return heard
        if heard.isolation is None:
            heard.isolation = Isolation(**{name: message[name] for name in Isolation.__dataclass_fields__})
        elif message.get("kind") == "done":
            heard.ended = "done"
            return heard
        else:
            heard.messages.append(message)
    heard.ended = ended or ("garbage" if cut else "code 0")
    return heard


def _not_a_number(word: str) -> float:
    raise ValueError(word)


def _placed(value: Any, folder: str, root: str) -> Any:
    """Files of the copy under the names that the user knows them by."""
    if isinstance(value, str):
        return value.replace(folder, root) if folder in value else value
    if isinstance(value, list):
        return [_placed(item, folder, root) for item in value]
    if isinstance(value, dict):
        return {name: _placed(item, folder, root) for name, item in value.items()}
    return value


@contextlib.contextmanager
def closed_to_others() -> Iterator[None]:
    """While candidates run, processes of the same user cannot look into this one."""
    if sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    before = int(libc.prctl(_GET_DUMPABLE, 0, 0, 0, 0))
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SET_DUMPABLE, before, 0, 0, 0)
