"""Every row of the table of heuristics is there for a kernel that takes longer without it."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.kernels.cases import LOOPS, SEARCHED, STRAIGHT
from scripts.heuristics_table import Row, Subject, rows, subject, table

from nki.compiler import CompileConfig
from nki.passes.order_search.heuristics import HEURISTICS, PATIENT
from nki.passes.scheduling.list_schedule import Heuristic

# For each row of the table, with the times that its kernel takes at least without it.
NEEDED: dict[tuple[str, Heuristic], tuple[str, str, float]] = {
    ("several", Heuristic(window=400, spare=1)): ("attention 128x2048 bf16", "trn2", 1.01),
    ("several", Heuristic(spare=1)): ("mlp 512x2048 bf16", "trn2", 1.005),
    ("several", Heuristic(window=64)): ("softmax 8192x1024 f32", "trn2", 1.0005),
    ("several", Heuristic(window=112, written=True)): ("rope 1024x2048 f32", "trn1", 1.01),
    ("several", PATIENT): ("capped 2560x1024 f32", "trn2", 1.005),
    ("several", PATIENT._replace(window=32)): ("capped 2560x1024 f32", "trn1", 1.01),
    ("several", Heuristic(window=128)): ("cumsum 384x8192 f32", "trn2", 1.02),
    ("several", Heuristic(window=48)): ("softmax 2560x512 f32", "trn2", 1.005),
    ("several", Heuristic(window=24)): ("matmul 512x512 bf16", "trn1", 1.02),
    ("several", Heuristic(window=16)): ("loop-layer 128x128 bf16", "trn2", 1.03),
    ("several", Heuristic(window=32)): ("layernorm 1536x1024 f32", "trn3", 1.01),
    ("several", Heuristic(window=64, written=True)): ("transposed 1024x512 bf16", "trn3", 1.003),
    ("one_with_sums", Heuristic(window=400, spare=1)): ("attention-full 128x2048 bf16", "trn2", 1.02),
    ("one_with_sums", Heuristic(spare=1)): ("mlp 1024x2048 bf16", "trn2", 1.3),
    ("one_without", Heuristic(window=112, written=True)): ("rope 2048x2048 f32", "trn2", 1.05),
}


@cache
def compiled(label: str, target: str) -> Subject:
    """A kernel of the benchmarks for a target, up to the search; loops are unrolled."""
    cases = {case.label.rpartition(" ")[0]: case._replace(target=target) for case in (*STRAIGHT, *LOOPS, *SEARCHED)}
    found = subject(cases[label], label, CompileConfig(prefetch_auto=label.startswith("loop")))
    assert found is not None
    return found


def test_every_row_is_needed() -> None:
    every = [(column, row) for column, members in HEURISTICS._asdict().items() for row in members]
    assert len(every) == len(set(every))
    assert set(every) == set(NEEDED), "name a kernel that a new row is for, and none for a row that went"


# Searches of these take longer than those of all others together.
LONG = {"rope 2048x2048 f32", "mlp 1024x2048 bf16", "rope 1024x2048 f32", "attention 128x2048 bf16"}


@pytest.mark.parametrize(
    ("column", "row"),
    [pytest.param(*key, marks=[pytest.mark.slow] * (case[0] in LONG), id=str(key)) for key, case in NEEDED.items()],
)
def test_a_kernel_takes_longer_without_the_row(column: str, row: Heuristic) -> None:
    label, target, times = NEEDED[column, row]
    kernel = compiled(label, target)
    less = tuple(each for each in getattr(HEURISTICS, column) if each != row)
    assert kernel.best(HEURISTICS._replace(**{column: less})).makespan > times * kernel.best(HEURISTICS).makespan


def test_the_table_says_what_each_row_is_worth() -> None:
    window = Heuristic(window=64)
    few = HEURISTICS._replace(several=(Heuristic(window=1), window), one_with_sums=(), one_without=())
    kernel = compiled("softmax 2560x512 f32", "trn2")
    idle, useful = rows([kernel], few)
    assert idle == Row("several", Heuristic(window=1), (), {})
    assert useful.taken == (kernel.label,)
    assert useful.without[kernel.label] > 1.01
    text = table([idle, useful], 1)
    assert f"{kernel.label} {useful.without[kernel.label] - 1:+.2%}" in text
    assert text.endswith("1 of 2 rows are taken for some of 1 programs")
