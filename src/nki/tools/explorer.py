"""``nki explorer``: profiles in the browser, from a local server or as one HTML file."""

from __future__ import annotations

import importlib
import socket
from pathlib import Path
from typing import Any

import click

from nki.core.errors import UsageError
from nki.core.install import install_extra
from nki.core.source import UNKNOWN
from nki.explorer.guard import is_local
from nki.explorer.report import report
from nki.explorer.shown import Page, page_of
from nki.tools.output import Command, echo, stdout, working, write_json
from nki.tools.request import JSON, usage_error

MEASURED, ABOUT = "measured", "profile.json"
"""Where `nki profile --measured` puts what was measured, and the file that says that it is there."""

_EXTRA = ("starlette", "uvicorn", "anyio")


@click.command("explorer", cls=Command, short_help="Show a profile in the browser.")
@click.argument("folders", nargs=-1, required=True, metavar="DIR [DIR2]", type=click.Path(path_type=Path))
@click.option("--html", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write one HTML file instead.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=3001, show_default=True, help="0: any free one.")
@JSON
def command(folders: tuple[Path, ...], file: Path | None, host: str, port: int, as_json: bool) -> None:
    """Show a profile folder of `nki profile` in the browser, or two of them side by side.

    A folder that was written with --measured is shown with what was measured. A step of many ranks (`nki profile
    --ranks`) has a row for each rank.

    Without --html: a server on this machine until Ctrl+C, with SQL over the tables. Only this machine reaches it unless
    --host says otherwise; there is no password then.
    """
    if len(folders) > 2:
        raise usage_error("explorer.count", f"{len(folders)} profiles were given", "name one folder, or two to compare")
    if len(folders) == 1 and (folders[0] / MEASURED / ABOUT).is_file():
        folders = (folders[0], folders[0] / MEASURED)
    with working("reading the profile"):
        shown = page_of(folders)
    if file is not None:
        _write(shown, file, as_json)
    else:
        _serve(shown, host, port, as_json)


def _write(shown: Page, file: Path, as_json: bool) -> None:
    text = report(shown)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise usage_error(
            "explorer.write", f"{file} cannot be written: {problem.strerror or problem}", "name a file you may write"
        ) from None
    unit = shown[0].size[0]
    facts: dict[str, Any] = {
        "file": str(file),
        "bytes": len(text.encode()),
        unit: sum(each.size[1] for each in shown),
    }
    if as_json:
        write_json(facts)
    else:
        stdout().print(f"{file}: {facts['bytes'] / 1e6:.2f} MB, {facts[unit]:,} {unit}")


def _serve(shown: Page, host: str, port: int, as_json: bool) -> None:
    made = _server_module().server(shown, host, port)
    listening = _listen(host, port)
    found = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    if as_json:
        write_json({"url": f"http://{name}:{found}/", "local": is_local(host)})
    else:
        stdout().print(f"http://{name}:{found}/   (Ctrl+C ends it)")
    if not is_local(host):
        echo("anyone who reaches this address can read the profile", fg="yellow", err=True)
    try:
        made.run(sockets=[listening])
    finally:
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket of the address, so that a port that is taken is an error of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), port))
        made.listen()
    except OSError as problem:
        made.close()
        raise usage_error(
            "explorer.address", f"{host}:{port} cannot be used: {problem.strerror or problem}", "name another --port"
        ) from None
    return made


def _server_module() -> Any:
    try:
        return importlib.import_module("nki.explorer.server")
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise UsageError(
            "explorer.extra",
            f"the explorer's server needs {problem.name}, which is not installed",
            rule="the server needs starlette and uvicorn; --html needs neither",
            fix=f"{install_extra('explorer')}, or write a file with --html",
            location=UNKNOWN,
        ) from None
