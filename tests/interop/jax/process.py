"""Runs Python in a process of its own, where JAX can be set up differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SECONDS = 250
"""More than any of these processes needs."""


def run(code: str, **variables: str) -> str:
    """What it prints; it must end well."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "NKI_CACHE": "0", **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
