"""Every rule of the advice finds its fault, leaves the better kernel alone, and promises no more than there is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.profiling import build
from nki.profiling.advice.ranking import duration
from tests.profiling.advice import cases
from tests.profiling.advice.cases import BF16, CASES, WIDE, Case
from tests.profiling.support import advice, array, hbm, loaded, profiled, psum, rules, sbuf, stored


@pytest.fixture
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The case of a rule, for its target."""
    found = CASES[request.param]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", found.target)
    return found


def test_what_was_overwritten_is_no_repetition() -> None:
    """The same instruction again, after its input was changed in place."""

    def kernel(a: Any) -> Any:
        x, y = loaded(a), sbuf(a.shape)
        for _ in range(20):
            nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
            nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)
        return stored(y)

    assert "repeated-results" not in rules(profiled(kernel, array(128, 1024)))


def test_sums_that_are_cleared_are_no_repetition() -> None:
    """Each tile is set to 0 and then added to, so that none can stand for another one."""

    def kernel(a: Any) -> Any:
        x, tiles = loaded(a), [sbuf(a.shape) for _ in range(20)]
        for number, tile in enumerate(tiles):
            nisa.memset(dst=tile, value=0.0)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=number + 1.0)
            nisa.tensor_tensor(dst=x, data1=x, data2=tile, op=nl.add)
        return stored(x)

    assert "repeated-results" not in rules(profiled(kernel, array(128, 1024)))


def test_every_rule_has_a_case() -> None:
    assert {rule.__name__.replace("_", "-") for rule in build.RULES} == set(CASES)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.0, "0 µs"),
        (1250.0, "1.25 µs"),
        (999_900.0, "999.9 µs"),
        (999_960.0, "1 ms"),
        (4e7, "40 ms"),
        (1.2e9, "1.2 s"),
    ],
)
def test_durations_have_the_unit_that_fits(ns: float, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(("name", "case"), [(name, name) for name in CASES], indirect=["case"])
def test_a_rule_finds_its_fault(name: str, case: Case) -> None:
    kernel, arguments = case.bad
    profile = profiled(kernel, *arguments)
    assert name in rules(profile), rules(profile)
    found = advice(profile, name)
    assert 0.0 < found["saving_ns"] <= profile.makespan_ns
    assert found["share"] == pytest.approx(found["saving_ns"] / profile.makespan_ns)
    assert re.search(r"\d", found["message"])
    assert found["fix"]
    assert found["instructions"]
    assert found["sources"]


@pytest.mark.parametrize(("name", "case"), [(name, name) for name in CASES], indirect=["case"])
def test_a_rule_leaves_the_better_kernel_alone(name: str, case: Case) -> None:
    kernel, arguments = case.good
    assert name not in rules(profiled(kernel, *arguments))


SAME_WORK = (
    "activation-tables",
    "engine-balance",
    "far-strides",
    "float32-matmul",
    "fusion",
    "loop-barriers",
    "no-overlap",
    "repeated-loads",
    "repeated-results",
    "reused-buffers",
    "round-trips",
    "shared-ports",
    "slow-engine",
    "small-descriptors",
    "transfer-starts",
    "two-inputs",
)
"""Where the better kernel is the other one after its advice was followed, and nothing else."""


@pytest.mark.parametrize(("name", "case"), [(name, name) for name in SAME_WORK], indirect=["case"])
def test_the_saving_is_no_empty_promise(name: str, case: Case) -> None:
    """The kernel without the fault is faster by at least half of what is expected, and by no more than is possible."""
    bad, good = (profiled(kernel, *arguments) for kernel, arguments in (case.bad, case.good))
    gained = bad.makespan_ns - good.makespan_ns
    found = advice(bad, name)
    assert 0.5 * found["expected_ns"] <= gained <= found["saving_ns"]


def _in_rows(rows: int) -> Callable[..., Any]:
    """128 rows in tiles of so many, each with a scale and its square."""

    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        for first in range(0, a.shape[0], rows):
            mine = nl.ds(first, rows)
            x, y = loaded(a[mine]), sbuf((rows, a.shape[1]))
            for number in range(4):
                nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=number + 0.5)
            nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.multiply)
            nisa.dma_copy(dst=out[mine], src=y)
        return out

    return kernel


def _in_columns(columns: int) -> Callable[..., Any]:
    """A tile whose columns are scaled so many at a time, and added up."""

    def kernel(a: Any) -> Any:
        x, y, total = loaded(a), sbuf(a.shape), sbuf((128, 1))
        for start in range(0, a.shape[1], columns):
            mine = nl.ds(start, columns)
            nisa.tensor_scalar(dst=y[:, mine], data=x[:, mine], op0=nl.multiply, operand0=0.5)
            nisa.activation(dst=y[:, mine], op=nl.exp, data=y[:, mine])
        nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)
        return stored(total)

    return kernel


def _in_turn(ahead: bool) -> Callable[..., Any]:
    """Products of eight tiles, of which one is loaded when the one before was multiplied, or ahead."""

    def kernel(a: Any, b: Any) -> Any:
        w, x, out = loaded(b), sbuf((128, 2, 512), BF16)[:, 0], hbm((8, 128, 512), BF16)
        for number in range(8):
            x = sbuf((128, 512), BF16) if ahead else x
            nisa.dma_copy(dst=x, src=a[number])
            total, tile = psum((128, 512)), sbuf((128, 512), BF16)
            for _ in range(8):
                nisa.nc_matmul(dst=total, stationary=w, moving=x, accumulate=True)
            nisa.activation(dst=tile, op=nl.copy, data=total)
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return kernel


FOLLOWED: dict[str, Case] = {
    "few-partitions": Case((_in_rows(16), WIDE), (_in_rows(128), WIDE)),
    "short-instructions": Case((_in_columns(16), WIDE), (_in_columns(1024), WIDE)),
    "tensor-clock": Case(
        (_in_turn(False), (array(8, 128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
        (_in_turn(True), (array(8, 128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
    ),
}
"""Of the other rules: a kernel, and the same after its advice was followed."""


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_saved_is_no_more_than_is_possible(name: str) -> None:
    bad, good = (profiled(kernel, *arguments) for kernel, arguments in FOLLOWED[name][:2])
    found = advice(bad, name)
    assert 0.0 < bad.makespan_ns - good.makespan_ns <= found["saving_ns"]


def test_every_rule_was_followed() -> None:
    assert {*SAME_WORK, *FOLLOWED} == set(CASES)


def test_advice_is_ranked() -> None:
    kernel, arguments = CASES["short-instructions"].bad
    savings = [each["saving_ns"] for each in profiled(kernel, *arguments).advice]
    assert savings == sorted(savings, reverse=True)


@pytest.mark.parametrize("case", ["two-inputs"], indirect=True)
def test_the_numbers_of_two_inputs(case: Case) -> None:
    """40 additions of 512 columns take two cycles for an element instead of one."""
    kernel, arguments = case.bad
    profile = profiled(kernel, *arguments)
    found = advice(profile, "two-inputs")
    saved = 40 * 512 / 1.12  # ns at 1.12 GHz
    assert f"with one of them in PSUM it takes {saved / 1000:.4g} µs less" in found["fix"]
    assert saved <= found["expected_ns"] <= found["saving_ns"]
    assert found["expected_ns"] == pytest.approx(saved, rel=0.05)
    lines = Path(cases.__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "data1=x, data2=y, op=nl.add)" in text)
    assert f"in line {line} of cases.py" in found["message"]
    assert np.array_equal(
        np.unique([profile["instructions"]["opcode"][n] for n in found["instructions"]]), ["nisa.tensor_tensor"]
    )
