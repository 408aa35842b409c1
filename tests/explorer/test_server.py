"""The server answers pages of its own name, serves nothing but the profile, and survives what it is sent."""

from __future__ import annotations

import contextlib
import json
import socket
import zlib
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from nki.explorer import guard
from nki.explorer.shown import from_folders
from tests.explorer.conftest import Running, serving
from tests.explorer.folders import make


def test_the_page_and_its_parts(running: Running) -> None:
    page = running.ask("GET", "/")
    assert page.status == 200
    assert b'data-count="2"' in page.body
    assert running.ask("GET", "/explorer.js").headers["content-type"].startswith("text/javascript")
    assert running.ask("GET", "/style.css").headers["content-type"].startswith("text/css")
    block = running.ask("GET", "/api/profile/1")
    assert zlib.decompress(block.body)
    assert block.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("path", ["/", "/explorer.js", "/api/profile/0", "/nothing", "/api/profile/7"])
def test_every_answer_has_the_headers(running: Running, path: str) -> None:
    headers = running.ask("GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/profile.json",
        "/instructions.parquet",
        "/static/base.js",
        "/base.js",
        "/index.html",
        "/api",
        "/api/profile/",
        "/api/profile/2",
        "/api/profile/-1",
        "/api/profile/0/../../../../etc/passwd",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
        "/api/profile/99999999999999999999999",
    ],
)
def test_there_are_no_other_paths(running: Running, path: str) -> None:
    answer = running.ask("GET", path)
    assert answer.status in (307, 404)
    assert b"root:" not in answer.body
    assert answer.headers.get("location", running.url).startswith(running.url)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::1", "localhost:x"]
)
def test_other_names_are_refused(running: Running, host: str) -> None:
    assert running.ask("GET", "/api/profile/0", Host=host).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:5"])
def test_names_of_this_machine(running: Running, host: str) -> None:
    assert running.ask("GET", "/", Host=host).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "file://"])
def test_other_pages_are_refused(running: Running, origin: str) -> None:
    body = json.dumps({"sql": "SELECT 1"}).encode()
    assert running.ask("POST", "/api/sql", body, Content_Type="application/json", Origin=origin).status == 403
    assert running.ask("GET", "/api/profile/0", Origin=origin).status == 403


def test_its_own_page_may_ask(running: Running) -> None:
    body = json.dumps({"sql": "SELECT 1"}).encode()
    origin = f"http://127.0.0.1:{running.port}"
    answer = running.ask("POST", "/api/sql", body, Content_Type="application/json", Origin=origin)
    assert answer.json()["rows"] == [[1]]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"sql": "SELECT 1"}', "text/plain"),
        (b"sql=SELECT", "application/x-www-form-urlencoded"),
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"{}", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b'{"sql": 1}', "application/json"),
        (b'{"sql": "SELECT 1", "profile": 2}', "application/json"),
        (b'{"sql": "SELECT 1", "profile": true}', "application/json"),
        (b'{"sql": "SELECT 1", "profile": "0"}', "application/json"),
        (b"[" * 60_000, "application/json"),
        (b" " * (guard.MOST_BODY + 1), "application/json"),
        (b'{"sql": "\\ud800"}', "application/json"),
    ],
)
def test_bad_requests_are_answered(running: Running, body: bytes, kind: str) -> None:
    answer = running.ask("POST", "/api/sql", body, Content_Type=kind)
    assert answer.status == 400
    assert answer.json()["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "OPTIONS"])
def test_other_methods(running: Running, method: str) -> None:
    assert running.ask(method, "/api/profile/0").status == 405
    assert "access-control-allow-origin" not in running.ask(method, "/").headers


def test_queries_of_both_profiles(running: Running) -> None:
    one, two = (
        running.sql("SELECT SUM(end_ns - move_ns) FROM instructions WHERE engine = 'vector'", n) for n in (0, 1)
    )
    assert two["rows"][0][0] > 1.8 * one["rows"][0][0]
    assert "no such column" in running.sql("SELECT missing FROM instructions")["error"]


def test_an_answer_does_not_read_the_folder_again(tmp_path: Path) -> None:
    """What happens to the folder afterwards, links to elsewhere included, does not matter."""
    folder = make(tmp_path / "p", 16)
    server = serving(from_folders([folder]))
    running = next(server)
    before = running.ask("GET", "/api/profile/0").body
    for file in folder.iterdir():
        file.unlink()
        file.symlink_to("/etc/passwd")
    assert running.ask("GET", "/api/profile/0").body == before
    assert next(server, None) is None


@pytest.mark.parametrize(
    ("host", "header", "good"),
    [
        ("0.0.0.0", "192.168.1.5:3001", True),
        ("0.0.0.0", "[fe80::1]:3001", True),
        ("0.0.0.0", "evil.example", False),
        ("192.168.1.5", "192.168.1.5:3001", True),
        ("192.168.1.5", "192.168.1.6:3001", False),
        ("127.0.0.1", "192.168.1.5", False),
        ("profiler.lan", "Profiler.LAN:80", True),
        ("::", "[2001:db8::1]", True),
    ],
)
def test_names_of_servers_for_others(host: str, header: str, good: bool) -> None:
    assert guard.allowed(header, host) is good


def test_clients_that_never_ask_are_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four of them would have all connections that there are."""
    monkeypatch.setattr("nki.explorer.protocol.HEADER_SECONDS", 0.3)
    monkeypatch.setattr("nki.explorer.server._BODY_SECONDS", 0.3)
    for running in serving(from_folders([folder])):
        slow = []
        for said in (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "):
            with_headers = socket.create_connection(("127.0.0.1", running.port), timeout=30)
            with_headers.sendall(said)
            slow.append(with_headers)
        for client in slow:
            assert client.recv(100) == b"", "the server ends the connection"
            client.close()
        head = f"POST /api/sql HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
            client.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            answer = b""
            while b"}" not in answer:
                answer += client.recv(10_000)
            assert b"takes longer than 0.3 s" in answer
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
            for _ in range(2):  # two requests on one connection, the second one in two parts
                client.sendall(b"GET /style.css HTTP/1.1\r\n")
                client.sendall(f"Host: 127.0.0.1:{running.port}\r\n\r\n".encode())
                assert client.recv(100).startswith(b"HTTP/1.1 200")
                client.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    while client.recv(1 << 20):
                        pass
                client.settimeout(30)
        assert running.ask("GET", "/").status == 200
