"""`nki explorer` as it is used: reports, the server in a process of its own, and folders that are no profiles."""

from __future__ import annotations

import builtins
import http.client
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nki.explorer import shown
from nki.explorer.assets import digest, script, style
from nki.explorer.report import report
from tests.explorer.folders import make
from tests.tools.running import nki, nki_json


def test_a_report_is_one_file(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    facts = nki_json("explorer", str(folder), "--html", str(file))
    text = file.read_text(encoding="utf-8")
    assert facts == {"file": str(file), "bytes": file.stat().st_size, "instructions": 400}
    assert text.count("<script") == 2, "the data and the program"
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert not [line for line in text.splitlines() if line.startswith("<link")]
    assert digest(script()) in text
    assert digest(style()) in text


def test_a_report_of_two(folder: Path, other: Path, tmp_path: Path) -> None:
    text = nki("explorer", str(folder), str(other), "--html", str(tmp_path / "two.html")).stdout
    assert "800 instructions" in text
    assert 'data-count="2"' in (tmp_path / "two.html").read_text(encoding="utf-8")


def test_a_report_has_markup_of_a_profile_only_as_data(tmp_path: Path) -> None:
    evil = "</title></script><b>&"
    folder = make(tmp_path / "p", 16, name="K")
    document = json.loads((folder / "profile.json").read_text())
    document["kernel"] = evil
    (folder / "profile.json").write_text(json.dumps(document))
    text = report(shown.from_folders([folder]))
    assert text.encode("utf-8")
    assert "<b>" not in text
    assert "&lt;/title&gt;&lt;/script&gt;&lt;b&gt;&amp;" in text


def test_the_server_in_its_process(folder: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "nki.tools.cli", "explorer", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            said = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            assert said["local"] is True
            port = int(said["url"].rstrip("/").rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
            connection.close()
            assert listeners(port) == {"127.0.0.1"}
            endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t"
            connection.request("POST", "/api/sql", json.dumps({"sql": endless}), {"Content-Type": "application/json"})
            time.sleep(0.5)
            connection.close()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors


def listeners(port: int) -> set[str]:
    """Addresses that something listens on at this port, by the kernel's table."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, state = line.split()[1], line.split()[3]
        host, _, number = address.partition(":")
        if int(number, 16) == port and state == "0A":
            found.add(socket.inet_ntoa(bytes.fromhex(host)[::-1]))
    return found


# --- used wrongly


def test_too_many_folders(folder: Path) -> None:
    assert "explorer.count" in nki("explorer", *[str(folder)] * 3, code=2).stderr
    assert "Missing argument" in nki("explorer", code=2).stderr


def test_a_file_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    error = nki_json("explorer", str(folder), "--html", str(tmp_path / "no" / "x.html"), code=2)["error"]
    assert error["code"] == "explorer.write"


def test_a_port_that_is_taken(folder: Path) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "explorer.address" in nki("explorer", str(folder), "--port", str(port), code=2).stderr


def test_a_server_without_its_packages(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str, package: str | None = None) -> Any:
        if name == "nki.explorer.server":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, package)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", no_module)
    assert "[explorer]'" in nki("explorer", str(folder), code=2).stderr
    nki("explorer", str(folder), "--html", str(tmp_path / "x.html"))


def test_more_than_a_page_can_show(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MOST_ROWS", 100)
    assert nki_json("explorer", str(folder), "--html", "/dev/null", code=1)["error"]["code"] == "explorer.size"


# --- folders that are no profiles


def cut(folder: Path) -> None:
    file = folder / "instructions.parquet"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def noise(folder: Path) -> None:
    (folder / "edges.parquet").write_bytes(os.urandom(4096))


def flipped(folder: Path) -> None:
    file = folder / "dma.parquet"
    data = bytearray(file.read_bytes())
    data[4:64] = bytes(60)
    file.write_bytes(bytes(data))


def missing(folder: Path) -> None:
    (folder / "time.parquet").unlink()


def linked(folder: Path) -> None:
    (folder / "sources.parquet").rename(folder.parent / "elsewhere")
    (folder / "sources.parquet").symlink_to(folder.parent / "elsewhere")


def secret(folder: Path) -> None:
    (folder / "profile.json").unlink()
    (folder / "profile.json").symlink_to("/etc/passwd")


def pipe(folder: Path) -> None:
    (folder / "path.parquet").unlink()
    os.mkfifo(folder / "path.parquet")


def huge(folder: Path) -> None:
    with (folder / "counters.parquet").open("wb") as file:
        file.truncate(40 << 30)  # no bytes on the disk


def bomb(folder: Path) -> None:
    """A billion equal rows in a few kB."""
    schema = pq.read_schema(folder / "counters.parquet")
    with pq.ParquetWriter(folder / "counters.parquet", schema) as writer:
        rows = 1 << 20
        columns = [pa.array([0] * rows), pa.array(["x"] * rows), pa.array([0.0] * rows), pa.array([0.0] * rows)]
        for _ in range(24):
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def foreign(folder: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), folder / "memory.parquet")


def version(folder: Path) -> None:
    document = json.loads((folder / "profile.json").read_text())
    (folder / "profile.json").write_text(json.dumps(document | {"version": 99}))


def deep(folder: Path) -> None:
    (folder / "profile.json").write_text("[" * 100_000)


def infinite(folder: Path) -> None:
    text = (folder / "profile.json").read_text()
    (folder / "profile.json").write_text(text.replace('"launch_ns": 15000.0', '"launch_ns": 1e999'))


def loops(folder: Path) -> None:
    table = pq.read_table(folder / "sources.parquet")
    parents = pa.array([0] * table.num_rows, pa.int64())
    at = table.column_names.index("parent")
    pq.write_table(table.set_column(at, table.schema.field("parent"), parents), folder / "sources.parquet")


SPOILT: dict[Callable[[Path], None], str] = {
    cut: "profile.folder",
    noise: "profile.folder",
    flipped: "profile.folder",
    missing: "profile.folder",
    linked: "profile.folder",
    secret: "profile.folder",
    pipe: "profile.folder",
    huge: "profile.size",
    bomb: "profile.size",
    foreign: "profile.table",
    version: "profile.version",
    deep: "profile.folder",
    infinite: "profile.values",
    loops: "profile.values",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_folders_that_are_no_profiles(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    """Refused with a code and a reason, before anything is written or served."""
    folder = make(tmp_path / "p", 16)
    spoil(folder)
    file = tmp_path / "x.html"
    error = nki_json("explorer", str(folder), "--html", str(file), code=1)["error"]
    assert error["code"] == SPOILT[spoil]
    assert error["message"]
    assert "root:" not in json.dumps(error)
    assert not file.exists()


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert nki_json("explorer", str(tmp_path / "none"), code=1)["error"]["code"] == "profile.folder"
    (tmp_path / "file").write_text("x")
    assert nki_json("explorer", str(tmp_path / "file"), code=1)["error"]["code"] == "profile.folder"


def test_only_files_of_the_folder_are_opened(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source files that a profile names are not looked for."""
    opened: list[str] = []
    real_os, real = os.open, builtins.open

    def spy_os(path: Any, *rest: Any, **more: Any) -> int:
        opened.append(os.fspath(path))
        return real_os(path, *rest, **more)

    def spy(path: Any, *rest: Any, **more: Any) -> Any:
        opened.append(str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", spy_os)
    monkeypatch.setattr(builtins, "open", spy)
    report(shown.from_folders([folder]))
    ours = {path for path in opened if not path.isdigit() and "/nki/explorer/static/" not in path}
    assert {Path(path).name for path in ours} == {"profile.json", *(file.name for file in folder.glob("*.parquet"))}
    assert {Path(path).parent for path in ours} == {folder}
