"""The largest elements of rows: a step of sampling, one shard of a vocabulary, and many rows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.topk import create_rotational_topk_config, create_topk_config
from nkilib.experimental.topk import create_gpsimd_topk_config


def _case(rows: int, columns: int, k: int, lnc: int = 1) -> Case:
    def arguments(make: Make, rows: int = rows) -> dict[str, Any]:
        asked = create_topk_config((rows, columns), nl.float32, k, num_programs=lnc)
        config = create_rotational_topk_config((rows, columns), asked)
        return {"inp": make((rows, columns), nl.float32), "config": config}

    def theirs(make: Make) -> dict[str, Any]:
        module = import_module("nkilib_src.nkilib.core.topk.rotational_topk")
        asked = module.create_topk_config((rows, columns), nl.float32, k, True, lnc)
        config = module.create_rotational_topk_config((rows, columns), asked)
        return {
            "inp": make((rows, columns), nl.float32),
            "config": module.prepare_rotational_constants(config),
        }

    def small(make: Make) -> dict[str, Any]:
        return arguments(make, min(rows, 40))  # of millions of random numbers some are equal, and come in any order

    name = f"{k} of {columns}, {rows} rows"
    moved = 4 * rows * (columns + 2 * k)
    return Case("rotational_topk", name, arguments, 0, moved, lnc, exact=True, small=small, theirs=theirs)


def _by_gpsimd(rows: int, columns: int, k: int) -> Case:
    def arguments(make: Make, rows: int = rows) -> dict[str, Any]:
        config = create_gpsimd_topk_config((rows, columns), nl.bfloat16, k)
        return {"inp": make((rows, columns), nl.bfloat16), "config": config}

    moved = rows * (2 * columns + 6 * k)
    # elements of bfloat16 are equal to others, whose indices come in any order: values are compared
    return Case(
        "gpsimd_topk",
        f"{k} of {columns}, {rows} rows",
        arguments,
        0,
        moved,
        exact=True,
        small=lambda make: arguments(make, min(rows, 16)),
        official=False,
        meaning=lambda found: found if found.dtype != "uint32" else found * 0,
    )


CASES = [
    _case(1, 25600, 256),
    _case(8, 3168, 256),
    _case(40, 8192, 256),
    _case(2, 151936, 256),
    _case(1024, 8192, 64),
    _case(32, 16000, 8),
    _case(1024, 8192, 64, lnc=2),
    _by_gpsimd(64, 32064, 256),
    _by_gpsimd(128, 8192, 1024),
]
