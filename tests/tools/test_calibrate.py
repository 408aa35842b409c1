"""`nki calibrate`: the published runs beside the model, a target that has what was fitted, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nki.target.load import load_target
from nki.topology import collective_time, instance_of
from tests.tools.running import nki, nki_json

RUNS = str(Path(__file__).parents[2] / "examples" / "collective_runs.json")


def test_published_runs_make_a_target(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    shown = nki("calibrate", RUNS, "--target", "trn1", "--out", str(out)).stdout
    assert "collectives on trn1.32xlarge" in shown and "41,806.0" in shown and "start_ns: left: " in shown
    mine, trn1 = load_target(str(out)), load_target("trn1")
    assert mine.collectives.keys() == {"dma_share", "link_share"} and mine.timing == trn1.timing
    times = [collective_time("permute", 2**25, [range(8)], instance_of(t), t).ns for t in (trn1, mine)]
    assert abs(times[1] - 894240) < abs(times[0] - 894240)
    told = nki_json("calibrate", RUNS, "--target", str(out), "--instance", "trn1n.32xlarge")
    assert told["instance"] == "trn1n.32xlarge" and len(told["runs"]) == 22
    before = {each["name"]: each["before"] for each in told["coefficients"]}
    assert before["dma_share"] == mine.collectives["dma_share"]


def test_a_file_keeps_what_it_says_beside_collectives(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    leaf = '{ value = 31.0, unit = "ns", fitted = "to a test", meaning = "none" }'
    first.write_text(f'base = "trn1"\nsemaphore_ns = {leaf}\n[collective]\nstart_ns = {leaf}\n')
    nki("calibrate", RUNS, "--target", str(first), "-o", str(second))
    found = load_target(str(second))
    assert found.timing["semaphore_ns"] == 31.0 and found.collectives["start_ns"] == 31.0
    assert found.collectives["dma_share"] == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "is no JSON"),
        ("[]", "is no list of runs"),
        ('[{"ranks": 2}]', 'run 0 of runs.json is {"ranks": 2}'),
        ('[{"collective": "sum", "ranks": 2, "bytes": 1, "us": 1}]', "the collective 'sum'"),
        ('[{"collective": "permute", "ranks": 1, "bytes": 1, "us": 1}]', "1 ranks"),
        ('[{"collective": "permute", "ranks": 2, "bytes": 1, "us": NaN}]', "us nan"),
        ('[{"collective": "permute", "ranks": 2, "bytes": true, "us": 1}]', "bytes True"),
    ],
)
def test_runs_that_are_none(text: str, problem: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(text)
    error = nki_json("calibrate", str(runs), code=2)
    assert "calibrate.runs" in json.dumps(error) and problem in nki("calibrate", str(runs), code=2).stderr


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for out in ("mine.txt", str(tmp_path / "none" / "mine.toml")):
        assert "calibrate.out" in nki("calibrate", RUNS, "-o", out, code=2).stderr
    assert "cannot be read" in nki("calibrate", str(tmp_path / "none.json"), code=2).stderr


def test_a_target_with_coefficients_that_there_are_not(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    for text, problem in (("collective = 3", "is no table"), ("[collective]\nspeed = {}", "has unknown speed")):
        mine.write_text(f'base = "trn1"\n{text}\n')
        assert problem in nki("targets", str(mine), code=2).stderr
