"""Builds and runs for the packaging tests: no network, no isolation, output in the error when something fails."""

import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(source: Path, into: Path) -> zipfile.ZipFile:
    """The one wheel that `source` builds."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--wheel-dir", into)
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=into)
    (path,) = into.glob("*.whl")
    return zipfile.ZipFile(path)
