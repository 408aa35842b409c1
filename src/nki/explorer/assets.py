"""The files of the front end: one page, one style sheet, and scripts in the order in which they build on each other."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib.resources import files

SCRIPTS = (
    "base",
    "decode",
    "lane",
    "model",
    "draw",
    "state",
    "filter",
    "grid",
    "overlay",
    "input",
    "timeline",
    "details",
    "summary",
    "operators",
    "source",
    "memory",
    "roofline",
    "query",
    "compare",
    "tabs",
    "ranks",
    "rank_rows",
    "page",
    "start",
)


@cache  # files of the package, which do not change
def read(name: str) -> str:
    """A file of the front end."""
    return files("nki.explorer").joinpath("static", name).read_text(encoding="utf-8")


@cache  # files of the package, which do not change
def script() -> str:
    """All scripts as one."""
    return "".join(f"{read(f'{name}.js')}\n" for name in SCRIPTS)


def style() -> str:
    """The style sheet."""
    return read("style.css")


def page(*, title: str, mode: str, count: int, policy: str, style_tag: str, data: str, script_tag: str) -> str:
    """The page; `title` is text, everything else is written by this package."""
    parts = {
        "policy": policy,
        "style": style_tag,
        "count": str(count),
        "mode": mode,
        "title": html.escape(title),
        "script": script_tag,
        "data": data,
    }
    head, *rest = read("index.html").split("<!--")
    found = [head]
    for piece in rest:
        name, _, after = piece.partition("-->")
        found += [parts[name], after]
    return "".join(found)


def digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
