"""Profiles that the tests of the explorer share, and a server that runs in this process."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nki.explorer.report import report
from nki.explorer.shown import Page, from_folders
from tests.conftest import NOT_INSTALLED
from tests.explorer.browser import Browser, end, find
from tests.explorer.folders import make

NODE = shutil.which("node")


@pytest.fixture(scope="session")
def browser() -> None:
    """Tests that open a page are skipped where nothing can show one."""
    if find() is None:
        pytest.skip(_missing())


@pytest.fixture(scope="session")
def node() -> None:
    """Tests of the pages' scripts are skipped where nothing can run them."""
    if NODE is None:
        pytest.skip(_missing())


def _missing() -> str:
    missing = [name for name, found in (("chromium", find()), ("nodejs", NODE)) if found is None]
    return f"what tests of the explorer's pages need {NOT_INSTALLED}: apt-get install {' '.join(missing)}"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """A server that answers, and the raw requests to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """The path goes out as it is written here."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        named = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        if body is not None:
            named["Content-Length"] = str(len(body))
        for name, text in named.items():
            connection.putheader(name, text)
        connection.endheaders(body)
        answer = connection.getresponse()
        reply = Reply(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        connection.close()
        return reply

    def sql(self, statement: str, profile: int = 0) -> Any:
        body = json.dumps({"profile": profile, "sql": statement}).encode()
        return self.ask("POST", "/api/sql", body, Content_Type="application/json").json()


def serving(shown: Page, host: str = "127.0.0.1") -> Iterator[Running]:
    """Until the caller is done."""
    server = pytest.importorskip("nki.explorer.server", exc_type=ImportError).server(shown, host, 0)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield Running(listening.getsockname()[1])
    server.should_exit = True
    thread.join(60)
    listening.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of 400 instructions on two cores."""
    return make(tmp_path_factory.mktemp("profiles") / "before", 200, cores=2)


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same kernel with a slower vector engine."""
    return make(tmp_path_factory.mktemp("profiles") / "after", 200, cores=2, slower=2.0)


@pytest.fixture(scope="session")
def running(folder: Path, other: Path) -> Iterator[Running]:
    yield from serving(from_folders([folder, other]))


@pytest.fixture(scope="session", autouse=True)
def one_browser() -> Iterator[None]:
    """It starts with the first page, and ends with the session."""
    yield
    end()


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of one profile."""
    made = tmp_path_factory.mktemp("report") / "report.html"
    made.write_text(report(from_folders([folder])), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def both(folder: Path, other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two profiles."""
    made = tmp_path_factory.mktemp("report") / "both.html"
    made.write_text(report(from_folders([folder, other])), encoding="utf-8")
    return made


@pytest.fixture
def page(file: Path) -> Iterator[Browser]:
    """The report of one profile, opened; it has nothing to complain of and asks nobody."""
    with Browser() as browser:
        browser.open_file(file)
        yield browser
        # the test that reads pixels is told that it could be faster
        assert [text for text in browser.messages if "willReadFrequently" not in text] == []
        assert browser.requests == [file.as_uri()], "a report asks nobody for anything"
