"""Programs under torchrun, as a user starts them; nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PATIENCE = 240
"""Seconds after which a program is ended: nothing of what is tested waits for ever."""


def environment_of(**others: str) -> dict[str, str]:
    """What processes of tests have in their environment."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **others}


def torchrun(
    program: str, processes: int, *arguments: str, patience: float = PATIENCE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder in so many processes, which have ended when this returns."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    started = subprocess.Popen(
        [*command, str(HERE / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_of(**environment),
        start_new_session=True,
    )
    try:
        out, error = started.communicate(timeout=patience)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, started.returncode, out, error)
