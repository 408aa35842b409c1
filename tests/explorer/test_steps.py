"""The page of a step: a row for each rank, ranks that meet, and tables that say what the profile says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nki.core.errors import ArtifactError
from nki.explorer.assets import read
from nki.explorer.report import report
from nki.explorer.shown import page_of, title
from nki.explorer.steps import MOST_RANKS, ShownStep
from tests.explorer.browser import Browser, settle
from tests.explorer.conftest import NODE, serving
from tests.profiling.test_ranks import straggling


def header(shown: ShownStep, place: Path) -> Any:
    """What the page's own script reads of a block."""
    (place / "block").write_bytes(shown.block())
    script = f"""{read("decode.js")}
    (async () => console.log(JSON.stringify(
      decode(await inflate(require("fs").readFileSync({json.dumps(str(place / "block"))}))).step)))();"""
    (place / "run.cjs").write_text(script, encoding="utf-8")
    done = subprocess.run([NODE or "", str(place / "run.cjs")], capture_output=True, check=True, text=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.usefixtures("node")
def test_the_page_reads_what_there_is(tmp_path: Path) -> None:
    profile = straggling(4096)
    found = header(ShownStep(profile, "x"), tmp_path)
    assert [row["rank"] for row in found["rows"]] == [*range(MOST_RANKS)]
    for row in found["rows"]:
        mine, told = profile.class_of(row["rank"]), found["classes"][row["class"]]
        assert told["exposed_ns"] == mine.exposed_ns
        assert sum(end - start for start, end in told["exposed"]) == pytest.approx(mine.exposed_ns)
        assert sum(end - start for start, end in told["work"]) == pytest.approx(mine.work_ns)
        assert len(told["communications"]) == 2
    meets = {tuple(rank for rank, _ in members) for _, _, _, members in found["meetings"]}
    assert meets == {tuple(range(first, first + 4)) for first in range(0, 64, 4)}
    assert {last for _, _, last, members in found["meetings"] if members[0][0] == 4} == {5}


@pytest.mark.usefixtures("browser")
def test_ranks_are_rows_and_a_click_says_who_meets(tmp_path: Path) -> None:
    straggling().save(tmp_path)
    file = tmp_path / "step.html"
    file.write_text(report(page_of([tmp_path])), encoding="utf-8")
    with Browser(1200, 800) as page:
        page.open_file(file)
        settle(page)
        made = straggling().class_of(6).communications[0]
        middle = (made.ready_ns + made.start_ns) / 2  # it waits for rank 5
        box = page.run("(() => { const b = explorer.rows.canvas.getBoundingClientRect(); return [b.left, b.top]; })()")
        x, y = page.run(f"[explorer.rows.scale().x({middle}), explorer.rows.y(6) + explorer.rows.geometry.height / 2]")
        page.click(box[0] + x, box[1] + y)
        text = page.run("document.querySelector('.details').innerText")
        assert "rank 5 comes last" in text
        page.key("j")
        assert page.run("explorer.selected") == {"row": 7, "number": 0}
        rows = page.run("[...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent)")
        assert sorted(rows) == ["0-3", "4, 6-7", "5"]
        colour = page.run(f"explorer.doing(5, {made.start_ns + 1})")
        assert colour[1:] == ["works", "in toy", "moves data of _meet, 4 KiB"]
        assert page.messages == []


def test_a_server_has_no_sql_for_a_step(tmp_path: Path) -> None:
    straggling().save(tmp_path)
    shown = page_of([tmp_path])
    assert title(shown) == "toy – profile"
    for running in serving(shown):
        assert running.sql("SELECT 1") == {"error": "there is no such profile"}
        assert running.ask("GET", "/api/profile/0").status == 200
    (tmp_path / "step.json").write_text("{}")
    with pytest.raises(ArtifactError) as refused:
        page_of([tmp_path])
    assert refused.value.code == "profile.version"
