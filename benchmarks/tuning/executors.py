"""Tunes one kernel of 64 configurations by different executors: the same table, and how long each takes.

usage: python -m benchmarks.tuning.executors [--size N] [--workers N] [--only TEXT,...] [--json FILE]

The first executor is what the others are compared with. Workers have started before the clock does; "start" is how long
that took.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.tuning.kernels import CONFIGS, multiply

import nki
from nki.tune.processes import Processes, running
from nki.tune.tuned import Tuned


@contextlib.contextmanager
def dask(workers: int) -> Iterator[Executor]:
    """A cluster of this machine, with a process for each worker."""
    distributed = importlib.import_module("distributed")
    made = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with made as cluster, cluster.get_client() as client:
        yield client.get_executor(pure=False)


def executors(workers: int) -> dict[str, Any]:
    """How each is begun."""
    return {
        "this process": lambda: contextlib.nullcontext(None),
        f"{workers} processes of nki": lambda: running(Processes(workers)),
        f"ThreadPoolExecutor({workers})": lambda: ThreadPoolExecutor(workers),
        f"ProcessPoolExecutor({workers}), spawn": lambda: ProcessPoolExecutor(workers, get_context("spawn")),
        f"dask.distributed, {workers} workers": lambda: dask(workers),
    }


def warm(number: int) -> str:
    """Import what an answer needs; `number` tells one worker's call from another one's."""
    return importlib.import_module("nki.tune.model").__name__


def tuned(executor: Executor | None, size: int) -> Tuned:
    """One search, with nothing remembered."""
    how: dict[str, Any] = {"processes": 1} if executor is None else {"executor": executor}
    one = np.ones((size, size), np.float32)
    return nki.autotune(configs=CONFIGS, **how)(multiply).tune(one, one)


def main() -> None:
    """Read the command line, and tune by one executor after another."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=512, help="rows and columns of both matrices")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="parts of the names of executors, with commas")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.update(NKI_CACHE="0", NEURON_PLATFORM_TARGET_OVERRIDE="trn2")
    warm(0)
    rows: list[dict[str, Any]] = []
    first: Tuned | None = None
    for name, begin in executors(given.workers).items():
        if not any(text in name for text in given.only.split(",")):
            continue
        began = time.perf_counter()
        with begin() as executor:
            if executor is not None:
                wait([executor.submit(warm, number) for number in range(given.workers)])
            started = time.perf_counter()
            found = tuned(executor, given.size)
            ended = time.perf_counter()
        first = first or found
        row = {"by": name, "start_s": started - began, "tune_s": ended - started, "chosen": found.chosen.label}
        rows.append({**row, "same_table": found.candidates == first.candidates})
        print(
            f"{name:32} start {started - began:6.1f} s  tuning {ended - started:6.1f} s  same table: "
            f"{rows[-1]['same_table']}  {found.chosen.label}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
