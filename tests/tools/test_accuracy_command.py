"""`nki targets --accuracy` prints the recorded comparison of the timing model, and claims nothing beyond it."""

from __future__ import annotations

from dataclasses import asdict

from nki.target.accuracy import interval, recorded
from tests.tools.running import nki, nki_json


def test_the_record_is_printed() -> None:
    found, shown = recorded(), nki("targets", "--accuracy").stdout
    assert all(point.id in shown for point in found.points)
    assert f"{found.summary['mape']:.1f} %" in shown and f"{found.summary['mape_left_out']:.1f} %" in shown
    assert "left out: the same if" in shown and "kernels on trn2 that transfers bound" in shown
    assert "\x1b" not in shown and "…" not in shown


def test_the_record_as_data() -> None:
    found, told = recorded(), nki_json("targets", "--accuracy")
    assert [point["id"] for point in told["points"]] == [point.id for point in found.points]
    assert told["summary"]["points"] == len(found.predicted)
    assert told["targets"]["trn1"].startswith("validated") and told["targets"]["trn2"].startswith("validated")
    assert "no accuracy is claimed" in told["targets"]["trn3"]
    assert all(item["reason"] for item in told["excluded"])
    assert told["intervals"]["trn3"] == {} and told["intervals"].keys() == told["targets"].keys()
    for bound, each in told["intervals"]["trn2"].items():
        assert each == asdict(interval("trn2", bound))


def test_one_target_at_a_time() -> None:
    told = nki_json("targets", "inf2", "--accuracy")
    assert {point["target"] for point in told["points"]} == {"trn1"} == set(told["targets"])
    assert [point["id"] for point in nki_json("targets", "trn3", "--accuracy")["points"]] == ["mx_product"]
