"""Exchanges between ranks: gathers of activations, and the product that overlaps with one."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

from nki.collectives import ReplicaGroup

_BYTES = 2


def _gathered(rows: int, columns: int, ranks: int) -> Any:
    def arguments(make: Make) -> dict[str, Any]:
        return {"inp": make((rows, columns)), "replica_groups": ReplicaGroup([list(range(ranks))]), "tp_degree": ranks}

    return arguments


def _ring(rows: int, inner: int, ranks: int, columns: int = 0) -> Any:
    def arguments(make: Make) -> dict[str, Any]:
        right = {"rhs": make((inner, columns))} if columns else {}
        return {"lhs": make((rows, inner)), **right, "tp_degree": ranks, "num_groups": 1}

    return arguments


def _gather_bytes(rows: int, columns: int, ranks: int) -> int:
    return rows * columns * (1 + ranks) * _BYTES


def _moved(kernel: str, name: str, arguments: Any, nbytes: int) -> Case:
    return Case(kernel, name, arguments, 0, nbytes, ranks=4, exact=True)


CASES = [
    _moved("allgather_sb2sb", "128 x 512 on 4 ranks", _gathered(128, 512, 4), _gather_bytes(128, 512, 4)),
    _moved("allgather_sb2sb_tiled", "1024 x 512 on 4", _gathered(1024, 512, 4), _gather_bytes(1024, 512, 4)),
    _moved("fine_grained_allgather", "512 x 2048 on 4", _ring(512, 2048, 4), _gather_bytes(512, 2048, 4)),
    Case(
        "allgather_compute_matmul",
        "256 x 2048 on 4, 512 columns",
        _ring(256, 2048, 4, 512),
        2 * 4 * 256 * 2048 * 512,
        (256 * 2048 + 2048 * 512 + 4 * 256 * 512) * _BYTES,
        ranks=4,
    ),
]
