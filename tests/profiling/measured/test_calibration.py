"""Coefficients that were changed by known factors are found again in noisy, incomplete profiles of their timelines."""

from __future__ import annotations

import os
import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArtifactError, TargetError, UsageError
from nki.profiling.build import profile_programs
from nki.profiling.measured.calibration import calibrate, calibration_text, write_calibration
from nki.profiling.measured.comparison import Comparison, compare
from nki.profiling.measured.fit import Fit
from nki.spec.program import Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.target.names import TIMING
from tests.profiling.support import array, hbm, loaded, psum, sbuf, stored


def varied(a: Any, weights: Any) -> Any:
    """Tiles of several sizes on every engine that coefficients speak of, and functions that change."""
    out, wide = hbm((128, a.shape[1]), nl.bfloat16), hbm((128, 8192), nl.bfloat16)
    w = loaded(weights)
    for column in range(0, 8192, 2048):
        nisa.dma_copy(dst=wide[:, column : column + 2048], src=loaded(a[:, column : column + 2048]))
    start = 0
    for round_ in range(9):
        for size in (128, 512, 256, 64):
            x, product = sbuf((128, size), nl.bfloat16), psum((128, size))
            y, z = sbuf((128, size), nl.bfloat16), sbuf((128, size), nl.bfloat16)
            nisa.dma_copy(dst=x, src=a[:, start : start + size])
            nisa.nc_matmul(dst=product, stationary=w, moving=x)
            nisa.activation(dst=y, op=nl.exp if round_ % 2 else nl.tanh, data=product)
            nisa.tensor_scalar(dst=z, data=y, op0=nl.multiply, operand0=0.5)
            nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=0.25)
            nisa.tensor_tensor(dst=z, data1=y, data2=z, op=nl.add)
            nisa.dma_copy(dst=out[:, start : start + size], src=z)
            start += size
    return out, wide


@pytest.fixture(scope="module")
def programs() -> Sequence[Program]:
    kernel = nki.jit(varied)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
        patch.delenv("NKI_SIMULATOR", raising=False)
        kernel(array(128, 9 * 960, dtype=nl.bfloat16), array(128, 128, dtype=nl.bfloat16))
    return kernel.report.programs


def changed(target: Target, factors: dict[str, float]) -> Target:
    timing = {name: value * factors.get(name, 1.0) for name, value in target.timing.items()}
    return replace(target, timing=MappingProxyType(timing))


def device(programs: Sequence[Program], target: Target, folder: Path, edit: Callable[[list[Any]], None]) -> Path:
    """Tables of the timeline that a target gives, with other instructions than the kernel has."""
    profile_programs(programs, target).explorer(folder)
    path = folder / "Instruction.parquet"
    read = pq.read_table(path)
    rows = read.to_pylist()
    edit(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=read.schema), path)
    return folder


def noisy(seed: int, part: float, drop: int, add: int) -> Callable[[list[Any]], None]:
    """Durations with noise, some instructions less, and some of the device's own compiler."""

    def edit(rows: list[Any]) -> None:
        dice = random.Random(seed)
        for row in rows:
            lasted = max(1, round(row["duration_ns"] * (1.0 + dice.gauss(0.0, part))))
            row["duration_ns"], row["end_ts"] = lasted, row["start_ts"] + lasted
        for _ in range(drop):
            rows.pop(dice.randrange(len(rows)))
        for number in range(add):
            like = dice.choice(rows)
            strange = {
                "opcode": "MEMSET",
                "id": 10**6 + number,
                "nki_source_location": "compiler.cc:1",
                "duration_ns": 90,
            }
            rows.append({**like, **strange, "engine": "GpSimd", "end_ts": like["start_ts"] + 90})

    return edit


def fitted(programs: Sequence[Program], target: Target, folder: Path) -> tuple[Fit, Comparison]:
    comparison = compare(profile_programs(programs, target), folder)
    return calibrate(comparison, programs, target), comparison


FACTORS = {
    "issue_cycles": 0.85,
    "vector_fixed_cycles": 1.2,
    "scalar_fixed_cycles": 0.8,
    "tensor_fixed_cycles": 1.15,
    "tensor_rate": 0.9,
    "load_fixed_cycles": 1.3,
    "activation_table_load_ns": 0.75,
    "dma_trigger_ns": 1.1,
    "dma_completion_ns": 1.25,
    "dma_read_bytes_per_ns": 0.88,
    "dma_write_bytes_per_ns": 1.1,
    "dma_skew_ns": 1.2,
    "semaphore_ns": 1.3,
}


@pytest.mark.parametrize("seed", [1, 2])
def test_known_factors_are_found_again_within_two_percent(
    programs: Sequence[Program], seed: int, tmp_path: Path
) -> None:
    target = load_target("trn2")
    factors = (
        FACTORS if seed == 1 else {name: 1.0 / factor for name, factor in FACTORS.items() if name != "tensor_rate"}
    )
    folder = device(programs, changed(target, factors), tmp_path, noisy(seed, 0.01, drop=6, add=5))
    found, comparison = fitted(programs, target, folder)
    assert len(comparison.matched.events) >= 5
    assert comparison.matched.items
    known = {each.name: each for each in found.coefficients if each.fitted}
    assert len(known) >= 8, sorted(known)
    for name, each in known.items():
        assert each.value / each.before == pytest.approx(factors.get(name, 1.0), rel=0.02), name
    assert found.after < found.before


def test_what_nothing_tells_is_left_and_listed(programs: Sequence[Program], tmp_path: Path) -> None:
    target = load_target("trn2")
    folder = device(programs, changed(target, FACTORS), tmp_path, lambda rows: None)
    found, _ = fitted(programs, target, folder)
    left = {each.name: each for each in found.coefficients if not each.fitted}
    assert left.keys() >= {"launch_ns", "dma_trigger_gpsimd_ns"}
    for each in left.values():
        assert each.value == each.before
        assert each.why
    assert left["launch_ns"].why == "no matched instruction depends on it"


def test_what_only_a_sum_tells_is_left(tmp_path: Path) -> None:
    """Transfers of one size tell how long one takes, not which part of it are bytes."""
    target = load_target("trn2")

    def alike(a: Any) -> Any:
        for _ in range(3):
            a = stored(loaded(a))
        return a

    kernel = nki.jit(alike)
    kernel(array(128, 512))
    programs = kernel.report.programs
    factors = {"dma_read_bytes_per_ns": 0.8, "dma_trigger_ns": 1.2}
    folder = device(programs, changed(target, factors), tmp_path, lambda rows: None)
    found, _ = fitted(programs, target, folder)
    by_name = {each.name: each for each in found.coefficients}
    assert not by_name["dma_read_bytes_per_ns"].fitted
    assert "only" in by_name["dma_read_bytes_per_ns"].why
    assert by_name["dma_trigger_ns"].value / by_name["dma_trigger_ns"].before == pytest.approx(1.2, rel=0.02)


def test_a_calibration_is_a_target(programs: Sequence[Program], tmp_path: Path) -> None:
    target = load_target("trn2")
    folder = device(programs, changed(target, FACTORS), tmp_path / "tables", lambda rows: None)
    found, comparison = fitted(programs, target, folder)
    file = tmp_path / "own.toml"
    write_calibration(file, found, comparison, target)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["own.toml"]
    leaves = tomllib.loads(file.read_text())
    assert leaves.pop("base") == "trn2"
    assert leaves.keys() == TIMING.keys()
    assert all({"value", "unit", "meaning"} <= leaf.keys() for leaf in leaves.values())
    own = load_target(str(file))
    assert load_target(own.name) is own, "another process finds it by its name"
    assert own.timing["vector_fixed_cycles"] == pytest.approx(1.2 * target.timing["vector_fixed_cycles"], rel=0.02)
    assert "fitted" in own.provenance("timing.vector_fixed_cycles").estimate
    assert own.provenance("timing.launch_ns").value == target.timing["launch_ns"]
    assert own.features == target.features
    better = compare(profile_programs(programs, own), folder).to_json()
    assert abs(better["error"]) < abs(comparison.to_json()["error"]) / 2


def test_a_kernel_runs_on_a_target_of_somebodys_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'base = "trn2"\nissue_cycles = { value = 300.0, unit = "cycles", estimate = "a guess", meaning = "x" }\n'
    )

    def double(a: Any) -> Any:
        tile = loaded(a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        return stored(tile)

    a = array(128, 512) + 3.0
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", str(file))
    kernel = nki.jit(double)
    assert (kernel(a) == 6.0).all()
    assert kernel.report.target == load_target(str(file)).name
    slow = nki.profile(kernel)(a)
    assert kernel.profile.makespan_ns == slow.makespan_ns
    assert f"with coefficients of {file} for trn2" in " ".join(slow.summary().split())
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert nki.profile(kernel)(a).makespan_ns < slow.makespan_ns


@pytest.mark.parametrize(
    "text,code",
    [
        (None, "target.file"),
        ("base = ", "target.toml"),
        ("", "target.data"),
        ('base = "trn9"', "target.unknown"),
        ('base = "trn2"\nwarp = { value = 1.0, unit = "c", estimate = "x", meaning = "x" }', "target.data"),
        ('base = "trn2"\nissue_cycles = 3.0', "target.data"),
        ('base = "trn2"\nissue_cycles = { value = 3.0 }', "target.data"),
        ('base = "trn2"\nissue_cycles = { value = "x", unit = "c", estimate = "x", meaning = "x" }', "target.data"),
        ('base = "trn2"\nissue_cycles = { value = -1.0, unit = "c", estimate = "x", meaning = "x" }', "target.data"),
        ('base = "trn2"\nissue_cycles = { value = nan, unit = "c", estimate = "x", meaning = "x" }', "target.data"),
        ('base = "trn2"\nissue_cycles = { value = 3.0, unit = "c", meaning = "x" }', "target.source"),
        ('base = "trn2"\n' + "# " + "x" * (1 << 20), "target.file"),
    ],
)
def test_a_file_that_is_no_target(text: str | None, code: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "own.toml").write_text(text)
    with pytest.raises(TargetError) as caught:
        load_target(str(tmp_path / "own.toml"))
    assert caught.value.code == code


def test_a_file_that_changed_is_another_target(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('base = "trn2"\n')
    before = load_target(str(file))
    file.write_text('base = "trn2"\n# more\n')
    assert load_target(str(file)).name != before.name
    with pytest.raises(TargetError) as caught:
        load_target(before.name)
    assert caught.value.code == "target.changed"


def test_nothing_is_written_where_nothing_is_determined(
    programs: Sequence[Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = load_target("trn2")
    folder = device(programs, target, tmp_path / "tables", lambda rows: None)
    monkeypatch.setattr("nki.profiling.measured.fit.SURE", -1.0)
    with pytest.raises(ArtifactError) as caught:
        fitted(programs, target, folder)
    assert caught.value.code == "measured.calibrate"


def test_a_file_that_cannot_be_written_leaves_the_old_one(programs: Sequence[Program], tmp_path: Path) -> None:
    target = load_target("trn2")
    folder = device(programs, target, tmp_path / "tables", lambda rows: None)
    found, comparison = fitted(programs, target, folder)
    with pytest.raises(UsageError) as caught:
        write_calibration(tmp_path / "nowhere" / "own.toml", found, comparison, target)
    assert caught.value.code == "profile.write"
    assert sorted(os.listdir(tmp_path)) == ["tables"]


def test_names_that_others_gave_cannot_leave_their_line(programs: Sequence[Program], tmp_path: Path) -> None:
    target = load_target("trn2")
    folder = device(programs, target, tmp_path, lambda rows: None)
    path = folder / "Metadata.parquet"
    read = pq.read_table(path)
    (row,) = read.to_pylist()
    name = 'x"\nissue_cycles = 3 # \x1b[2J'
    pq.write_table(pa.Table.from_pylist([{**row, "profile_name": name}], schema=read.schema), path)
    found, comparison = fitted(programs, target, folder)
    text = calibration_text(found, comparison, target)
    assert tomllib.loads(text)["base"] == "trn2"
    assert text.replace("\n", "").isprintable()
