"""The version of this package, computed once, for the build and at run time alike.

`pyproject.toml` names `version()` as the source of the distribution's version, and `nki.__version__`, `nki --version`
and error messages call the same function, so that a source checkout and an installed wheel tell the same story.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

NEXT_RELEASE = "0.7.0"
"""What untagged builds are a development version of; the API level that this package follows."""

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]
_DESCRIBED = re.compile(
    r"(?:v(?P<tag>\d+(?:\.\d+)*)-(?P<distance>\d+)-g)?(?P<commit>[0-9a-f]{7,40})(?P<dirty>-dirty)?",
)


@cache  # git is asked once for each process
def version() -> str:
    """The version as PEP 440 text; nothing is computed before the first call.

    * Installed, or in a source archive: what the build wrote to the file ``VERSION`` beside this module.
    * In a git checkout: ``0.7.0`` exactly on tag ``v0.7.0``; ``0.7.1.dev3+g<commit>`` three commits later;
      ``0.7.0.dev0+g<commit>`` where no tag is known; each with ``.dirty`` when tracked files were changed.
    * Neither, or without git: ``0.7.0.dev0+unknown``.
    """
    built = _PACKAGE / "VERSION"
    if built.is_file():
        return built.read_text(encoding="ascii").strip()
    return from_description(_describe() if (_CHECKOUT / ".git").exists() else "")


def from_description(described: str) -> str:
    """The version for one line of ``git describe --tags --long --always --dirty``; unknown if it is not such a line."""
    match = _DESCRIBED.fullmatch(described.strip())
    if match is None:
        return f"{NEXT_RELEASE}.dev0+unknown"
    tag, dirty = match["tag"], match["dirty"]
    if tag and match["distance"] == "0" and not dirty:
        return tag
    number = f"{_following(tag)}.dev{match['distance']}" if tag else f"{NEXT_RELEASE}.dev0"
    return f"{number}+g{match['commit']}" + (".dirty" if dirty else "")


def _following(tag: str) -> str:
    *front, last = tag.split(".")
    return ".".join((*front, str(int(last) + 1)))


def _describe() -> str:
    # Both directories are named, so that GIT_DIR of a surrounding hook cannot make this describe another repository.
    place = (f"--git-dir={_CHECKOUT / '.git'}", f"--work-tree={_CHECKOUT}", "--no-optional-locks")
    what = ("describe", "--tags", "--long", "--always", "--dirty", "--abbrev=9", "--match=v[0-9]*")
    try:
        done = subprocess.run(("git", *place, *what), capture_output=True, text=True, check=False, cwd=_CHECKOUT)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
