"""Conflicts between two cores: against the oracle, and with kernels."""

from __future__ import annotations

from typing import Any

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.passes.check_races import program_races
from nki.target.load import load_target
from tests.ir.kernels import array, traced
from tests.passes.proof.agreement import table

TRN2 = load_target("trn2")


def test_it_says_what_the_oracle_says() -> None:
    found = table(range(250), "cores")
    assert all(oracle == proof for oracle, proof in found), found
    assert min(found[verdict, verdict] for verdict in ("ordered", "racy", "stuck")) > 5, found


@pytest.mark.slow
def test_it_says_what_the_oracle_says_of_many_programs() -> None:
    found = table(range(10_000, 13_000), "cores")
    assert all(oracle == proof for oracle, proof in found), found


def halves(a: Any, meet: bool) -> Any:
    """Each core writes its half, then reads the other one."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, 64), a.dtype, buffer=nl.sbuf)
    core = nl.program_id(0)
    other = 1 - core
    nisa.dma_copy(dst=out[core * 64 : core * 64 + 64], src=a[core * 64 : core * 64 + 64])
    if meet:
        nisa.core_barrier(out, cores=(0, 1))
    nisa.dma_copy(dst=tile, src=out[other * 64 : other * 64 + 64])
    return out


def test_a_barrier_orders_the_halves() -> None:
    assert program_races(traced(halves, array(), True, lnc=2), TRN2) == []


def test_without_one_both_lines_are_named() -> None:
    programs = traced(halves, array(), False, lnc=2)
    found = program_races(programs, TRN2)
    assert sorted(race.kind for race in found) == ["raw", "war"]
    race = next(race for race in found if race.kind == "raw")
    write, read = next(iter(programs[0].body.walk())), list(programs[1].body.walk())[1]
    assert (race.first, race.second, race.cores) == (write, read, (0, 1))
    assert race.bytes.endswith("bytes 0:16384")
    finding = race.finding("warning")
    assert finding.code == "cores.race" and "core_barrier" in finding.fix
    assert str(write.location) in finding.message and str(read.location) in finding.message
    assert program_races(programs[:1], TRN2) == []


def test_columns_of_both_cores_interleave() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 32), a.dtype, buffer=nl.sbuf)
        core = nl.program_id(0)
        nisa.dma_copy(dst=tile, src=a[:, core:64:2])
        nisa.dma_copy(dst=out[:, core:64:2], src=tile)
        return out

    assert program_races(traced(kernel, array(), lnc=2), TRN2) == []


def test_barriers_in_a_loop() -> None:
    def kernel(a: Any, meetings: int) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)

        def body(index: Any) -> None:
            if core == 0:
                nisa.dma_copy(dst=out, src=a)
            nisa.core_barrier(out, cores=(0, 1))
            if core == 1:
                tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=out)
            if meetings == 2:
                nisa.core_barrier(out, cores=(0, 1))

        nl.fori_loop(0, 4, body)
        return out

    assert program_races(traced(kernel, array(), 2, lnc=2), TRN2) == []
    found = program_races(traced(kernel, array(), 1, lnc=2), TRN2)  # the next trip writes while this one reads
    assert [race.kind for race in found] == ["war"] or [race.kind for race in found] == ["raw"]


def test_a_core_that_meets_alone() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.core_barrier(out, cores=(0, 1))
        return out

    (race,) = program_races(traced(kernel, array(), lnc=2), TRN2)
    assert (race.kind, race.code) == ("meeting", "schedule.meeting")


def test_private_memory_is_nobody_elses() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=scratch, src=a)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=scratch)
        return out

    assert program_races(traced(kernel, array(), lnc=2), TRN2) == []
