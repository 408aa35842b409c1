"""The command that installs an extra of this package, for how it was installed here.

On the public index the name of the package belongs to somebody else, so that ``pip install 'nki[profile]'`` may bring
something else. What brought this package brings its extras as well: the checkout, or the wheel. Where neither is known
the packages of the extra are named.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = "nki"
_OF_EXTRA = re.compile(r"""extra\s*==\s*["'](?P<extra>[\w-]+)["']""")


def install_extra(extra: str) -> str:
    """A line for a shell: ``pip install -e '.[profile]'``."""
    return f"{_pip()} install {_what(extra)}"


def _what(extra: str) -> str:
    checkout = _PACKAGE.parents[1]
    if (checkout / "pyproject.toml").is_file() and _PACKAGE.parent.name == "src":
        return "-e " + shlex.quote(f"{_shown(checkout)}[{extra}]")
    source, needed = _origin()
    if source:
        return shlex.quote(f"{_NAME}[{extra}] @ {source}")
    found = [line.partition(";")[0].strip() for line in needed if _names(line, extra)]
    return " ".join(map(shlex.quote, found)) or shlex.quote(f"{_NAME}[{extra}]")


def _origin() -> tuple[str, list[str]]:
    """Where the wheel came from, or "" for an index; and what the package requires."""
    try:
        found = metadata.distribution(_NAME)
    except metadata.PackageNotFoundError:
        return "", []
    try:
        direct = json.loads(found.read_text("direct_url.json") or "{}")
        source = str(direct.get("url", "")) if "dir_info" not in direct else ""
    except (ValueError, AttributeError):
        source = ""
    return source, found.requires or []


def _names(requirement: str, extra: str) -> bool:
    marker = _OF_EXTRA.search(requirement.partition(";")[2])
    return marker is not None and marker["extra"] == extra


def _pip() -> str:
    """``pip`` where that is this interpreter's: in an environment that is activated, or in none."""
    here = os.environ.get("VIRTUAL_ENV")
    if sys.prefix == sys.base_prefix or (here and Path(here).resolve() == Path(sys.prefix).resolve()):
        return "pip"
    return f"{shlex.quote(_shown(Path(sys.executable)))} -m pip"


def _shown(path: Path) -> str:
    """A path, from the working directory where it is in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
