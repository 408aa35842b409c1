"""What a summary says of how far off its time may be, against the recorded comparison itself."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.collectives as nccl
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArtifactError
from nki.profiling.evidence import expected_error
from nki.profiling.record import Profile
from nki.target import accuracy
from nki.target.load import load_target
from tests.profiling.support import PIPELINE, array, hbm, pipeline, profiled

POINTS = [
    point
    for point in tomllib.loads((Path(accuracy.__file__).parent / "calibration/accuracy.toml").read_text())["point"]
    if point["kind"] == "kernel"
]
ENGINES = ("dma", "sync", "tensor", "vector", "scalar", "gpsimd")


@pytest.mark.parametrize("engine", ["dma", "sync", "tensor", "vector", "scalar"])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_nine_of_ten_measured_kernels_were_within_it(target: str, engine: str) -> None:
    busy = {**dict.fromkeys(ENGINES, 10.0), engine: 95.0}
    found = expected_error(load_target(target), busy, 100.0, False)
    assert found.percent is not None
    same = {"dma": ("dma", "sync"), "sync": ("dma", "sync"), "tensor": ("tensor",)}.get(engine, ("vector", "scalar"))
    kinds = [
        [p for p in POINTS if p["bound"] in same and p["target"] == target],
        [p for p in POINTS if p["bound"] in same],
        [p for p in POINTS if p["target"] == target],
    ]
    points = next(each for each in kinds if len(each) >= 9)
    assert found.points == len(points)
    within = sum(abs(point["left_out_source"]) <= found.percent for point in points)
    assert within >= 0.9 * len(points)
    assert sum(abs(point["left_out_source"]) < found.percent for point in points) < within
    assert f"within {found.percent:.0f} % in nine of ten measured kernels on " in found.text
    assert ("too few" in found.text) == (points is not kinds[0])


def test_a_kernel_that_no_unit_bounds_is_a_kind_of_its_own() -> None:
    found = expected_error(load_target("trn2"), dict.fromkeys(ENGINES, 50.0), 100.0, False)
    waiting = [point for point in POINTS if point["bound"] == "waits" and point["target"] == "trn2"]
    assert found.points == len(waiting) and "no engine is always busy" in found.text


@pytest.mark.parametrize(
    "target,engine,collectives,about",
    [
        ("trn3", "dma", False, "no whole kernel on trn3"),
        ("trn2", "gpsimd", False, "no kernel that GpSimd bounds"),
        ("trn2", "dma", True, "no kernel that has collectives"),
    ],
)
def test_nothing_is_claimed_where_nothing_was_measured(target: str, engine: str, collectives: bool, about: str) -> None:
    assert not [point for point in POINTS if point["target"] == "trn3" or point["bound"] == "gpsimd"]
    found = expected_error(load_target(target), {engine: 99.0}, 100.0, collectives)
    assert found.percent is None and found.points == 0 and about in found.text
    assert found.text.endswith("so that nothing says how far off this is")


def test_summaries_say_it(tmp_path: Path) -> None:
    profile = profiled(pipeline, *PIPELINE)
    totals = profile.about.totals[0]
    wanted = expected_error(load_target("trn2"), totals["units"], profile.makespan_ns, False)
    assert profile.to_json()["accuracy"] == asdict(wanted)
    line = profile.summary().splitlines()[1]
    assert line == f"simulated: {wanted.text}"
    assert wanted.text in profile._repr_html_()
    profile.save(tmp_path)
    assert Profile.load(tmp_path).summary().splitlines()[1] == line


@pytest.mark.parametrize("change", [{"percent": "9"}, {"percent": -1.0}, {"text": "\x1b[2J"}, {"more": 1}])
def test_a_stored_one_is_checked(change: dict[str, Any], tmp_path: Path) -> None:
    profiled(pipeline, *PIPELINE).save(tmp_path)
    about = json.loads((tmp_path / "profile.json").read_text())
    about["accuracy"] |= change
    (tmp_path / "profile.json").write_text(json.dumps(about))
    with pytest.raises(ArtifactError) as error:
        Profile.load(tmp_path)
    assert error.value.code == "profile.values"


def test_collectives_are_seen_in_a_program() -> None:
    def summed(a: Any) -> Any:
        out, tile = hbm(a.shape), hbm(a.shape)
        nisa.dma_copy(dst=tile, src=a)
        nccl.all_reduce(dsts=[out], srcs=[tile], op=nl.add, replica_group=nccl.ReplicaGroup([[0]]))
        return out

    text = nki.profile(summed)(array(128, 512, dtype=np.float32)).summary()
    assert "compared with no kernel that has collectives" in text
