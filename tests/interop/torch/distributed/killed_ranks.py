"""Kill one of four ranks at random moments, and look how the others end: ``killed_ranks.py [TIMES [SEED]]``.

The ranks are forked from one process that has imported everything. Prints a line for each time.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from nki.interop.torch import eager_on, enable_device

SIZE = 4
SOON = 5.0
"""Seconds within which the others have to end."""
LATEST = 3.0
"""Seconds of a run of which one is drawn."""


def work(rank: int) -> None:
    """Do what a training step does, for ever: compute, reduce, pass on in a ring, and meet in a smaller group."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    x, y = torch.ones(1000, device="neuron"), torch.empty(1000, device="neuron")
    dist.barrier(device_ids=[0])
    Path(f"begun{rank}").touch()
    draw = random.Random(rank)
    while True:
        time.sleep(draw.random() * 0.05)  # ranks that compute
        begun = dist.all_reduce(x, async_op=True)
        sent = dist.isend(x[:10], (rank + 1) % SIZE)
        dist.recv(y[:10], (rank - 1) % SIZE)
        sent.wait()
        begun.wait()
        dist.all_gather_into_tensor(torch.empty(2000, device="neuron"), x, group=pairs[rank // 2])


def rank_main(rank: int, port: int) -> None:
    """One rank; what ends it goes into a file of its own."""
    code = 1
    try:
        where = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("neuron", init_method=where, rank=rank, world_size=SIZE, timeout=timedelta(minutes=5))
        work(rank)
    except Exception:  # noqa: BLE001 - whatever it is, the parent looks for the rank that it names
        Path(f"said{rank}").write_text(traceback.format_exc())
    finally:
        os._exit(code)  # what was forked leaves the parent's exit alone


def ended(processes: Sequence[int], seconds: float) -> dict[int, float]:
    """When processes ended, of those that did in so many seconds."""
    begun, found = time.monotonic(), {}
    while len(found) < len(processes) and time.monotonic() - begun < seconds:
        for rank, process in enumerate(processes):
            if rank not in found and os.waitpid(process, os.WNOHANG)[0]:
                found[rank] = time.monotonic() - begun
        time.sleep(0.02)
    return found


def once(victim: int, moment: float) -> tuple[bool, str]:
    """Whether all ended in time, named the victim and left nothing, and a line that says so."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = set(os.listdir("/dev/shm"))
    processes = []
    for rank in range(SIZE):
        process = os.fork()
        if not process:
            rank_main(rank, port)
        processes.append(process)
    found: dict[int, float] = {}
    try:
        while not all(Path(f"begun{rank}").exists() for rank in range(SIZE)):
            time.sleep(0.02)
        time.sleep(moment)
        os.kill(processes[victim], signal.SIGKILL)
        found = ended(processes, SOON)
    finally:
        for rank, process in enumerate(processes):
            if rank not in found:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
    others = [rank for rank in range(SIZE) if rank != victim]
    texts = [Path(f"said{rank}").read_text() if Path(f"said{rank}").exists() else "" for rank in others]
    named = sum("ranks.deadlock" in text and f"rank {victim} has ended" in text for text in texts)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        left = [] if again.connect_ex(("127.0.0.1", port)) else ["the port"]
    left += sorted(set(os.listdir("/dev/shm")) - shared)
    last = max(found.values(), default=SOON)
    good = len(found) == SIZE and named == len(others) and not left
    line = f"{victim:>6} {moment:>7.2f} {len(found):>6} {last:>7.2f} {named:>6} {' '.join(left) or 'nothing':>8}"
    return good, line


def main(times: int = 15, seed: int = 1) -> int:
    """How many times something went wrong."""
    enable_device()
    eager_on("host")
    draw, wrong = random.Random(seed), 0
    sys.stdout.write("victim  after s  ended  last s  named  left\n")
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            good, line = once(draw.randrange(SIZE), draw.random() * LATEST)
            if not good:
                wrong += 1
                for path in sorted(Path().glob("said*")):
                    sys.stdout.write(f"{path}: {path.read_text()[-1500:]}\n")
            os.chdir("/")
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
