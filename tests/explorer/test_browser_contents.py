"""What the pages make of several, strange, tiny and damaged profiles, in a headless Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nki.explorer.report import report
from nki.explorer.shown import from_folders
from nki.profiling.schema import TABLES
from tests.explorer.browser import Browser, place, selected, settle, visit_every_view
from tests.explorer.folders import make, write
from tests.profiling.formats.test_folder import EXTREME

pytestmark = pytest.mark.usefixtures("browser")


def test_names_are_text_wherever_they_come_from(tmp_path: Path) -> None:
    """A profile of unknown origin with markup in every text."""
    evil = "</script><img src=x onerror=\"document.title='bad'\"><script>document.title='bad'</script><!--"
    folder = make(tmp_path / "p", 64, file=f"/x/{evil}.py")
    spoil(folder, evil)
    file = tmp_path / "report.html"
    file.write_text(report(from_folders([folder])), encoding="utf-8")
    with Browser() as page:
        page.open_file(file)
        page.run("explorer.shared.select(explorer.models[0], 4)")
        for key in page.run("explorer.tabs.views.map((v) => v[0])"):
            page.run(f"explorer.tabs.open('{key}')")
            settle(page)
        page.run("[...document.querySelectorAll('select')].forEach((s) => s.dispatchEvent(new Event('change')))")
        page.mouse("mouseMoved", *place(page, 4))
        settle(page)
        assert page.run("document.querySelectorAll('img, iframe, object').length") == 0
        assert page.run("document.title") == f"{evil} – profile"
        assert page.run("document.querySelector('h1').textContent") == evil
        assert page.messages == []
        assert page.requests == [file.as_uri()]


def spoil(folder: Path, text: str) -> None:
    """Every free text of a profile is replaced."""
    document = json.loads((folder / "profile.json").read_text())
    document["kernel"] = document["target"] = document["generator"] = document["hardware"]["title"] = text
    for advice in document["advice"]:
        advice |= {"message": text, "fix": text, "rule": text, "engine": text}
    for totals in document["totals"]:
        totals["bound_by"] = text
        totals["units"][text] = 1.0
        totals["bounds"][text] = 1.0
    rows = {
        path.stem: [list(row.values()) for row in pq.read_table(path).to_pylist()] for path in folder.glob("*.parquet")
    }
    places = {
        "instructions": (3, 4, 7, 16),
        "edges": (4,),
        "dma": (12, 13),
        "memory": (1, 3, 4),
        "sources": (1, 2, 7),
        "counters": (1,),
    }
    for name, columns in places.items():
        for row in rows[name]:
            for column in columns:
                if isinstance(row[column], str):
                    row[column] = text
    write(folder, document, rows)


def test_two_profiles_are_aligned_and_compared(both: Path) -> None:
    with Browser() as page:
        page.open_file(both)
        assert page.run("explorer.tabs.current") == "compare"
        assert (
            page.run("explorer.timelines.map((t) => t.scale().perNs)").count(
                page.run("explorer.timelines[0].scale().perNs")
            )
            == 2
        )
        rows = page.run(
            "[...document.querySelectorAll('.panel .grid')].map((g) =>"
            " [...g.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.textContent)))"
        )
        by_kind = {row[0]: row for row in rows[1]}
        assert by_kind["nisa.tensor_tensor"][5].startswith("+")
        assert by_kind["nisa.activation"][5] == "0 ns"
        assert by_kind["nisa.tensor_tensor"][1:3] == ["50", "50"]
        page.run(
            "(() => { const s = document.querySelector('[aria-label=\"Time axes\"]');"
            " s.value = 'relative'; s.dispatchEvent(new Event('change')); })()"
        )
        ends = page.run("explorer.timelines.map((t) => t.scale().x(t.model.makespan))")
        assert ends[0] == pytest.approx(ends[1])
        assert page.messages == []


@pytest.mark.parametrize("mode", ["opcode", "line", "engine", "wait", "critical"])
def test_what_is_the_same_has_one_colour_in_both(folder: Path, tmp_path: Path, mode: str) -> None:
    """Also where what takes most time in one profile takes less in the other one, and lines have moved."""
    slow = make(tmp_path / "slow", 200, cores=2, slower=40.0)
    file = tmp_path / "both.html"
    file.write_text(report(from_folders([folder, slow])), encoding="utf-8")
    with Browser() as page:
        page.open_file(file)
        page.run(f"explorer.shared.colour = '{mode}'; explorer.shared.emit('colour')")
        seen = page.run(
            "explorer.models.map((m) => Array.from(m.colouring('MODE').colours, (colour, row) => ["
            "{opcode: m.inst.columns.opcode.at(row), engine: m.inst.columns.engine.at(row),"
            " wait: m.inst.columns.wait_kind.at(row), critical: m.critical[row] > 0,"
            " line: m.tables.sources.columns.text.at(m.inst.columns.source[row])}.MODE, colour]))".replace("MODE", mode)
        )
        colours: dict[str, set[int]] = {}
        for kind, colour in [*seen[0], *seen[1]]:
            colours.setdefault(str(kind), set()).add(colour)
        assert len(colours) > 1
        assert all(len(each) == 1 for each in colours.values()), colours
        legends = page.run("explorer.models.map((m) => { explorer.show(m); return explorer.legend.textContent; })")
        assert legends[0] == legends[1] != ""


def test_a_line_has_one_colour_in_the_memory_of_both(folder: Path, tmp_path: Path) -> None:
    """Also where one of the profiles has other lines, and more tensors of some."""
    fewer = make(tmp_path / "fewer", 200, cores=2)
    memory = pq.read_table(fewer / "memory.parquet")
    dropped = [name.startswith("t0_") and name != "t0_0" for name in memory["name"].to_pylist()]
    pq.write_table(memory.filter(pa.array([not each for each in dropped])), fewer / "memory.parquet")
    file = tmp_path / "both.html"
    file.write_text(report(from_folders([fewer, folder])), encoding="utf-8")
    with Browser() as page:
        page.open_file(file)
        page.run("explorer.tabs.open('memory')")
        seen = page.run(
            "explorer.models.map((m) => { const view = new MemoryView(explorer.shared, m, explorer.tip);"
            " return view.placed.map((row) => ["
            "m.tables.sources.columns.text.at(m.tables.memory.columns.source[row]), view.colourOf(row)]); })"
        )
        assert all(seen)
        colours: dict[str, set[int]] = {}
        for line, colour in [*seen[0], *seen[1]]:
            colours.setdefault(line, set()).add(colour)
        assert all(len(each) == 1 for each in colours.values()), colours
        assert page.messages == []


def test_ranges_and_markers_are_at_the_same_part_of_both(both: Path) -> None:
    with Browser() as page:
        page.open_file(both)
        page.run("explorer.shared.relative = true; explorer.shared.setView(0, explorer.shared.longest)")
        settle(page)
        page.run("explorer.shared.select(explorer.models[0], 100); explorer.timelines[0].over.focus()")
        page.key("m")
        start, x = page.run(
            "[explorer.models[0].start[100], explorer.timelines[0].scale().x(explorer.models[0].start[100])]"
        )
        marker = page.run("explorer.shared.markers[0]")
        assert marker * page.run("explorer.shared.part(explorer.models[0])") == pytest.approx(start)
        for number in (0, 1):
            scale = (
                f"explorer.timelines[{number}].scale().x({marker} * explorer.shared.part(explorer.models[{number}]))"
            )
            assert page.run(scale) == pytest.approx(x)


def test_the_tables_are_those_of_the_profile_that_was_chosen(both: Path) -> None:
    with Browser() as page:
        page.open_file(both)
        page.run("explorer.tabs.open('operators')")
        choose = (
            "(() => {{ const s = document.querySelector('[aria-label=\"Profile of the tables\"]');"
            " s.value = '{}'; s.dispatchEvent(new Event('change')); }})()"
        )
        vector = (
            "[...document.querySelectorAll('.panel tbody tr')].find((r) => r.textContent.includes('tensor_tensor'))"
            ".cells[3].textContent"
        )
        first = page.run(vector)
        page.run(choose.format(1))
        second = page.run(vector)
        page.run(choose.format(0))
        assert page.run(vector) == first != second
        assert page.messages == []


@pytest.mark.parametrize(
    "address", ["#view=x,y&event=9,9&tab=none", "#event=0,999999", "#event=__proto__,0", "#view=5,1"]
)
def test_strange_addresses_are_survived(file: Path, address: str) -> None:
    with Browser() as page:
        page.open(file.as_uri() + address)
        assert page.run("document.getElementById('app').dataset.ready") == "true"
        assert selected(page) is None
        assert page.messages == []


def test_damaged_reports_say_so(file: Path, tmp_path: Path) -> None:
    text = file.read_text(encoding="utf-8")
    at = text.index('id="profile-0">') + 200
    (tmp_path / "cut.html").write_text(text[:at] + text[at + 400 :], encoding="utf-8")
    with Browser() as page:
        page.open_file(tmp_path / "cut.html")
        assert page.run("document.getElementById('app').dataset.ready") == "failed"
        assert "cannot be shown" in page.run("document.body.innerText")


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_profiles(tmp_path: Path, count: int) -> None:
    folder = make(tmp_path / "p", 8)
    if count == 0:
        document = json.loads((folder / "profile.json").read_text())
        document["advice"] = []
        write(
            folder,
            document,
            {name: [] for name in TABLES},
        )
    file = tmp_path / "tiny.html"
    file.write_text(report(from_folders([folder])), encoding="utf-8")
    with Browser() as page:
        page.open_file(file)
        assert len(list(visit_every_view(page))) > 3
        assert page.messages == []


@pytest.mark.parametrize(
    "what", ["late", "often", "no time at all", "large", "strange units", "unknown counters", "fast"]
)
def test_extreme_values_are_shown(what: str, tmp_path: Path) -> None:
    """What a profile of unknown origin may say within the limits of the reader."""
    folder = make(tmp_path / "p", 64)
    EXTREME[what](folder)
    file = tmp_path / "report.html"
    file.write_text(report(from_folders([folder])), encoding="utf-8")
    with Browser() as page:
        page.open_file(file)
        page.run("explorer.shared.select(explorer.models[0], 4)")
        for key in visit_every_view(page):
            assert page.run("!/undefined|NaN|\\[object|function/.test(document.querySelector('.panel').innerText)"), key
        assert page.messages == []
