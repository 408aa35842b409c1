"""Runs Python in a process of its own, where JAX can be set up differently.

Processes are forked from one that has imported JAX and done nothing else with it, which is most of the time that they
take. They end as every process ends: the code is the last that they run.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
SECONDS = 250
"""More than any of these processes needs."""

SERVER = f"""
import json, os, signal, sys, warnings
import jax.numpy, nki.isa, nki.language

warnings.filterwarnings("ignore", r"os\\.fork\\(\\) was called", RuntimeWarning)  # JAX has no threads yet
while line := sys.stdin.readline():
    asked = json.loads(line)
    if process := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
    else:
        signal.alarm({SECONDS})
        for stream, path in ((1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        os.environ.update(asked["variables"])
        warnings.resetwarnings()
        break
else:
    sys.exit()
__name__, code = "__main__", asked["code"]
exec(code)
"""


def run(code: str, **variables: str) -> str:
    """What it prints; it must end well."""
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        asked = json.dumps({"code": code, "variables": variables, "out": str(out), "err": str(err)})
        assert server.stdin is not None and server.stdout is not None
        print(asked, file=server.stdin, flush=True)
        assert server.stdout.readline() == "0\n", err.read_text()
        return out.read_text()


def run_without_jax(code: str) -> str:
    """What it prints in a process that has imported nothing; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment(),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "NKI_CACHE": "0"}


@cache
def _server() -> subprocess.Popen[str]:
    pipe, command = subprocess.PIPE, [sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, env=_environment(), stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
    atexit.register(server.communicate)  # which ends it, since nothing more is asked
    return server
