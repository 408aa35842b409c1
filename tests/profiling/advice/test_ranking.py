"""Every rule of the advice: a kernel that it finds fault with, and one that does the same work without the fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.profiling import build
from nki.profiling.advice.ranking import duration
from tests.profiling.support import advice, array, hbm, loaded, profiled, psum, rules, sbuf, stored

BF16 = nl.bfloat16


class Case(NamedTuple):
    bad: tuple[Callable[..., Any], tuple[Any, ...]]
    good: tuple[Callable[..., Any], tuple[Any, ...]]
    target: str = "trn2"


@pytest.fixture
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The case of a rule, for its target."""
    found = CASES[request.param]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", found.target)
    return found


def _adds(held: Callable[[tuple[int, int]], Any]) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x, y, total = loaded(a), held((128, 512)), sbuf((128, 512))
        nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
        for _ in range(40):
            nisa.tensor_tensor(dst=y, data1=x, data2=y, op=nl.add)
        nisa.tensor_scalar(dst=total, data=y, op0=nl.add, operand0=1.0)
        return stored(total)

    return kernel


def _products(a: Any, b: Any) -> Any:
    x, w = loaded(a), loaded(b)
    out = psum((128, 512))
    for _ in range(40):
        nisa.nc_matmul(dst=out, stationary=w, moving=x, accumulate=True)
    tile = sbuf((128, 512))
    nisa.tensor_copy(dst=tile, src=out)
    return stored(tile)


def _strided(step: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x = loaded(a)
        y = sbuf((128, 512))
        for _ in range(30):
            nisa.activation(dst=y, op=nl.exp, data=x.ap([[16384, 128], [step, 512]]))
        return stored(y)

    return kernel


def _rows(rows: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x = loaded(a)
        y = sbuf(x.shape)
        for _ in range(30):
            nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
        return stored(y)

    kernel.__name__ = f"rows_{rows}"
    return kernel


def _scaled(again: bool) -> Callable[..., Any]:
    """Sums of products; one factor of each is the same product every time."""

    def kernel(a: Any) -> Any:
        x, total, kept = loaded(a), sbuf(a.shape), sbuf(a.shape)
        nisa.memset(dst=total, value=0.0)
        nisa.tensor_tensor(dst=kept, data1=x, data2=x, op=nl.multiply)
        for number in range(10):
            if again:
                kept = sbuf(a.shape)
                nisa.tensor_tensor(dst=kept, data1=x, data2=x, op=nl.multiply)
            scaled = sbuf(a.shape)
            nisa.tensor_scalar(dst=scaled, data=kept, op0=nl.multiply, operand0=number + 1.0)
            nisa.tensor_tensor(dst=total, data1=total, data2=scaled, op=nl.add)
        return stored(total)

    return kernel


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


def _long(a: Any) -> Any:
    x = loaded(a)
    for _ in range(8):
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    return stored(x)


def _short(a: Any) -> Any:
    x = loaded(a)
    for start in range(0, 2048, 8):
        nisa.tensor_scalar(dst=x[:, start : start + 8], data=x[:, start : start + 8], op0=nl.add, operand0=1.0)
    return stored(x)


def _on(engine: Any) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x, y = loaded(a), sbuf((128, 512))
        for _ in range(10):
            nisa.tensor_copy(dst=y, src=x, engine=engine)
            nisa.tensor_copy(dst=x, src=y, engine=engine)
        return stored(x)

    return kernel


def _activations(grouped: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x, y = loaded(a), sbuf((128, 512))
        functions = [nl.exp] * 10 + [nl.tanh] * 10 if grouped else [nl.exp, nl.tanh] * 10
        for function in functions:
            nisa.activation(dst=y, op=function, data=x)
            nisa.activation(dst=x, op=function, data=y)
        return stored(x)

    return kernel


def _pausing(pauses: bool) -> Callable[..., Any]:
    def kernel(a: Any, b: Any) -> Any:
        x, w = loaded(a), loaded(b)
        tile = sbuf((128, 512), BF16)
        for _ in range(8 if pauses else 1):
            out = psum((128, 512))
            for _ in range(12 if pauses else 60):
                nisa.nc_matmul(dst=out, stationary=w, moving=x, accumulate=True)
            nisa.activation(dst=tile, op=nl.exp, data=out)
            for _ in range(8):
                nisa.activation(dst=tile, op=nl.exp, data=tile)
            nisa.tensor_copy(dst=x, src=tile)
        return stored(tile)

    return kernel


def _one_bank(shared: bool) -> Callable[..., Any]:
    """Vector and Scalar take turns on a PSUM bank that both use."""

    def kernel(a: Any) -> Any:
        x, y, z = loaded(a), sbuf((128, 256)), sbuf((128, 256))
        bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=bank[:, 0:256], src=x)
        nisa.tensor_copy(dst=bank[:, 256:512], src=x)
        nisa.tensor_copy(dst=other[:, 256:512], src=x)
        for _ in range(30):
            nisa.tensor_scalar(dst=y, data=bank[:, 0:256], op0=nl.add, operand0=1.0)
            nisa.activation(dst=z, op=nl.exp, data=(bank if shared else other)[:, 256:512])
        nisa.tensor_tensor(dst=y, data1=y, data2=z, op=nl.add)
        return stored(y)

    return kernel


def _buffers(count: int) -> Callable[..., Any]:
    """Tiles at fixed addresses, so that the allocator does not take turns by itself."""

    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        tiles = [sbuf((128, 1024)) for _ in range(count)]
        for number in range(8):
            x = tiles[number % count]
            nisa.dma_copy(dst=x, src=a[number])
            for _ in range(2):
                nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[number], src=x)
        return out

    return kernel


def _serial(pieces: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        size = a.shape[1] // pieces
        for start in range(0, a.shape[1], size):
            x = loaded(a[:, start : start + size])
            for _ in range(4):
                nisa.activation(dst=x, op=nl.exp, data=x)
            nisa.dma_copy(dst=out[:, start : start + size], src=x)
        return out

    return kernel


def _looped(device: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        total = loaded(a)

        def trip(_: Any) -> None:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)

        if device:
            nl.fori_loop(0, 50, trip)
        else:
            for number in range(50):
                trip(number)
        return stored(total)

    return kernel


def _loads(transposed: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        total = sbuf((128, 128))
        nisa.memset(dst=total, value=0.0)
        for number in range(4):
            x = sbuf((128, 128))
            piece = a[number]
            nisa.dma_copy(dst=x, src=piece.ap([[1, 128], [128, 128]]) if transposed else piece)
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)
        return stored(total)

    return kernel


def _copies(pieces: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        size = a.shape[1] // pieces
        for start in range(0, a.shape[1], size):
            nisa.dma_copy(dst=out[:, start : start + size], src=loaded(a[:, start : start + size]))
        return out

    return kernel


def _again(kept: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        total, x = sbuf((128, 4096), BF16), loaded(a)
        nisa.memset(dst=total, value=0.0)
        for _ in range(6):
            x = x if kept else loaded(a)
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)
        return stored(total)

    return kernel


def _in_steps(fused: bool) -> Callable[..., Any]:
    """Exponentials of parts of a tile, and their sums."""

    def kernel(a: Any) -> Any:
        x, totals = loaded(a), sbuf((128, 10))
        for number in range(10):
            part, result, total = sbuf((128, 1024)), sbuf((128, 1024)), totals[:, nl.ds(number, 1)]
            if fused:
                nisa.activation(
                    dst=result, op=nl.exp, data=x, scale=0.1 * number,
                    reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce,
                )  # fmt: skip
            else:
                nisa.tensor_scalar(dst=part, data=x, op0=nl.multiply, operand0=0.1 * number)
                nisa.activation(dst=result, op=nl.exp, data=part)
                nisa.tensor_reduce(dst=total, op=nl.add, data=result, axis=1)
        return stored(totals)

    return kernel


def _on_one_engine(alone: bool) -> Callable[..., Any]:
    """Eight tiles that are scaled and stored, by Vector alone or by Scalar as well."""

    def kernel(a: Any) -> Any:
        x, out = loaded(a), hbm((8, 128, 1024), BF16)
        for number in range(8):
            tile = sbuf((128, 1024), BF16)
            for _ in range(4):
                if alone or number not in (1, 4, 6):
                    nisa.tensor_scalar(dst=tile, data=x, op0=nl.multiply, operand0=float(number))
                else:
                    nisa.activation(dst=tile, op=nl.copy, data=x, scale=float(number))
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return kernel


def _passes(through: bool) -> Callable[..., Any]:
    """Scaled in one loop, exponentials in a second one, or both in the first."""

    def kernel(a: Any) -> Any:
        scratch, out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm), hbm(a.shape)
        for number in range(8):
            x = loaded(a[number])
            nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
            if through:
                nisa.dma_copy(dst=scratch[number], src=x)
            else:
                nisa.activation(dst=x, op=nl.exp, data=x)
                nisa.dma_copy(dst=out[number], src=x)
        for number in range(8 if through else 0):
            y = loaded(scratch[number])
            nisa.activation(dst=y, op=nl.exp, data=y)
            nisa.dma_copy(dst=out[number], src=y)
        return out

    return kernel


WIDE, ROW = (array(128, 1024),), (array(128, 512),)
CASES: dict[str, Case] = {
    "two-inputs": Case((_adds(sbuf), ROW), (_adds(psum), ROW), "trn1"),
    "float32-matmul": Case(
        (_products, (array(128, 512), array(128, 128))),
        (_products, (array(128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
    ),
    "far-strides": Case((_strided(32), (array(128, 16384),)), (_strided(1), (array(128, 16384),))),
    "few-partitions": Case((_rows(16), (array(16, 1024),)), (_rows(128), (array(128, 1024),))),
    "short-instructions": Case((_short, (array(128, 2048),)), (_long, (array(128, 2048),))),
    "slow-engine": Case(
        (_on(nisa.engine.gpsimd), (array(128, 512),)),
        (_on(nisa.engine.vector), (array(128, 512),)),
    ),
    "activation-tables": Case((_activations(False), (array(128, 512),)), (_activations(True), (array(128, 512),))),
    "tensor-clock": Case(
        (_pausing(True), (array(128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
        (_pausing(False), (array(128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
    ),
    "shared-ports": Case((_one_bank(True), (array(128, 256),)), (_one_bank(False), (array(128, 256),))),
    "reused-buffers": Case((_buffers(1), (array(8, 128, 1024),)), (_buffers(8), (array(8, 128, 1024),))),
    "no-overlap": Case((_serial(1), (array(128, 4096),)), (_serial(16), (array(128, 4096),))),
    "loop-barriers": Case((_looped(True), (array(128, 512),)), (_looped(False), (array(128, 512),))),
    "small-descriptors": Case((_loads(True), (array(4, 128, 128),)), (_loads(False), (array(4, 128, 128),))),
    "transfer-starts": Case((_copies(64), (array(128, 4096),)), (_copies(4), (array(128, 4096),))),
    "repeated-results": Case((_scaled(True), (array(128, 1024),)), (_scaled(False), (array(128, 1024),))),
    "fusion": Case((_in_steps(False), WIDE), (_in_steps(True), WIDE)),
    "engine-balance": Case((_on_one_engine(True), WIDE), (_on_one_engine(False), WIDE)),
    "round-trips": Case((_passes(True), (array(8, 128, 1024),)), (_passes(False), (array(8, 128, 1024),))),
    "repeated-loads": Case(
        (_again(False), (array(128, 4096, dtype=BF16),)), (_again(True), (array(128, 4096, dtype=BF16),))
    ),
}


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
    profile = profiled(_adds(sbuf), *ROW)
    found = advice(profile, "two-inputs")
    saved = 40 * 512 / 1.12  # ns at 1.12 GHz
    assert f"with one of them in PSUM it takes {saved / 1000:.4g} µs less" in found["fix"]
    assert saved <= found["expected_ns"] <= found["saving_ns"]
    assert found["expected_ns"] == pytest.approx(saved, rel=0.05)
    line = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "data1=x, data2=y, op=nl.add)" in text
    )
    assert f"in line {line} of test_ranking.py" in found["message"]
    assert np.array_equal(
        np.unique([profile["instructions"]["opcode"][n] for n in found["instructions"]]), ["nisa.tensor_tensor"]
    )
