"""The process of one rank is killed: those of the others say so, and end."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.interop.torch.distributed.launching import HERE, PATIENCE, environment_of

_SIZE = 3
_SOON = 5.0
"""Seconds; half a second on a machine that does nothing else."""


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2], ids=["with-the-store", "without"])
def test_other_processes_name_the_killed_rank_and_end(victim: int, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        world = {"WORLD_SIZE": str(_SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    said = [tmp_path / f"rank{rank}" for rank in range(_SIZE)]
    processes = []
    for rank, path in enumerate(said):
        environment = environment_of(**world, RANK=str(rank), LOCAL_RANK=str(rank))
        with path.open("w") as file:
            command = [sys.executable, str(HERE / "ending_cases.py")]
            processes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment))
    try:
        end = time.monotonic() + PATIENCE
        while not all("is process" in path.read_text() for path in said):
            assert time.monotonic() < end and all(each.poll() is None for each in processes), said[0].read_text()
            time.sleep(0.05)
        processes[victim].kill()
        end = time.monotonic() + _SOON
        codes = [process.wait(max(0.0, end - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, (code, path) in enumerate(zip(codes, said, strict=True)):
        if rank != victim:
            text = path.read_text()
            assert code == 1 and "ranks.deadlock" in text and f"rank {victim} has ended" in text, text[-4000:]


@pytest.mark.slow
def test_a_rank_is_killed_at_random_moments() -> None:
    """The same for four ranks in the middle of what a training step does; 15 times by hand (`killed_ranks.py 15`)."""
    command = [sys.executable, str(HERE / "killed_ranks.py"), "4"]
    found = subprocess.run(command, env=environment_of(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode == 0, found.stdout[-4000:]
