"""The pages as people use them, in a headless Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nki.explorer.report import report
from nki.explorer.shown import from_folders
from nki.profile.schema import TABLES
from tests.explorer.browser import Browser
from tests.explorer.conftest import Running, needs_browser
from tests.explorer.folders import make, write
from tests.profile.test_folder import EXTREME

pytestmark = needs_browser


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of one profile."""
    made = tmp_path_factory.mktemp("report") / "report.html"
    made.write_text(report(from_folders([folder])), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def both(folder: Path, other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report") / "both.html"
    made.write_text(report(from_folders([folder, other])), encoding="utf-8")
    return made


@pytest.fixture
def page(file: Path) -> Iterator[Browser]:
    with Browser() as browser:
        browser.open_file(file)
        yield browser
        # the test that reads pixels is told that it could be faster
        assert [text for text in browser.messages if "willReadFrequently" not in text] == []
        assert browser.requests == [file.as_uri()], "a report asks nobody for anything"


def place(page: Browser, row: int) -> tuple[float, float]:
    """Where the middle of an event is in the window."""
    found = page.run(f"""(() => {{
      const t = explorer.timelines[0], box = boxOf(t, {row}, t.scale()), over = t.over.getBoundingClientRect();
      return [over.left + (box.x0 + box.x1) / 2, over.top + box.y + box.height / 2 - t.scroller.scrollTop];
    }})()""")
    return found[0], found[1]


def settle(page: Browser) -> None:
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def selected(page: Browser) -> Any:
    return page.run("explorer.shared.selected && explorer.shared.selected.row")


def test_a_click_selects_the_event_under_it(page: Browser) -> None:
    page.run("explorer.shared.setView(0, 12000)")
    settle(page)
    for row in (2, 4, 5):
        page.click(*place(page, row))
        assert selected(page) == row
    assert "activation" in page.run("document.querySelector('.details h2').textContent")
    text = page.run("document.querySelector('.details').innerText")
    assert "Waited" in text
    assert "tensor_tensor" in text, "what it waited for"
    page.run(
        "[...document.querySelectorAll('.details .edges button')]"
        ".find((b) => b.textContent.includes('tensor_tensor')).click()"
    )
    assert selected(page) == 4


def test_the_wheel_zooms_where_the_pointer_is(page: Browser) -> None:
    _, y = place(page, 100)
    before = page.run("explorer.timelines[0].scale().time(600)")
    for _ in range(4):
        page.mouse("mouseWheel", 600, y, deltaX=0, deltaY=-240)
        settle(page)
    after, length = page.run(
        "[explorer.timelines[0].scale().time(600), explorer.shared.view.to - explorer.shared.view.from]"
    )
    assert length < 0.3 * page.run("explorer.shared.longest")
    assert after == pytest.approx(before, rel=1e-6)
    start = page.run("explorer.shared.view.from")
    page.mouse("mousePressed", 600, y, button="left", clickCount=1)
    page.mouse("mouseMoved", 500, y, button="left", buttons=1)
    page.mouse("mouseReleased", 500, y, button="left", clickCount=1)
    assert page.run("explorer.shared.view.from") == pytest.approx(
        start + length * 100 / page.run("explorer.timelines[0].scale().width")
    )
    assert selected(page) is None, "a drag is no click"


def test_keys(page: Browser) -> None:
    page.run("explorer.timelines[0].over.focus()")
    whole = page.run("explorer.shared.view.to - explorer.shared.view.from")
    page.key("w")
    assert page.run("explorer.shared.view.to - explorer.shared.view.from") == pytest.approx(0.7 * whole)
    start = page.run("explorer.shared.view.from")
    page.key("d")
    assert page.run("explorer.shared.view.from") > start
    page.key("0")
    assert page.run("explorer.shared.view.from") == 0
    page.run("explorer.shared.select(explorer.models[0], 2)")
    page.key("n")
    assert selected(page) == 4
    page.key("p")
    assert selected(page) in (2, 3)
    page.key(".")
    assert page.run("explorer.models[0].inst.columns.queue.at(explorer.shared.selected.row)") == "tensor"
    page.key("m")
    assert page.run("explorer.shared.markers.length") == 1
    page.key("Escape")
    assert selected(page) is None
    assert page.run("explorer.timelines[0].live.textContent").startswith("nc_matmul")


def test_arrows_and_highlights_are_drawn(page: Browser) -> None:
    page.run("explorer.shared.setView(0, 12000)")
    settle(page)
    pixels = "(c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
    count = f"new Set(new Uint32Array(({pixels})(explorer.timelines[0].over).buffer)).size"
    assert page.run(count) == 1, "nothing is selected: the layer is empty"
    page.run("explorer.shared.select(explorer.models[0], 4)")
    settle(page)
    assert page.run(count) > 10
    grey = f"""(() => {{
      const d = ({pixels})(explorer.timelines[0].base);
      let n = 0;
      for (let i = 0; i < d.length; i += 4) n += Math.abs(d[i] - d[i + 1]) + Math.abs(d[i] - d[i + 2]) > 60 ? 1 : 0;
      return n;
    }})()"""
    colourful = page.run(grey)
    page.run("explorer.searchInput.value = 'activation'; explorer.search('activation')")
    settle(page)
    assert page.run(grey) < colourful / 3
    assert page.run("explorer.found.textContent") == "50 hits"


def test_source_and_events_lead_to_each_other(page: Browser) -> None:
    page.run("explorer.tabs.open('source')")
    line = (
        "[...document.querySelectorAll('table.code tbody tr')].find((r) => r.textContent.includes('nisa.activation'))"
    )
    page.run(f"{line}.click()")
    assert page.run("[...explorer.shared.masks.values()][0].reduce((a, b) => a + b, 0)") == 50
    page.run("explorer.shared.select(explorer.models[0], 5)")
    assert page.run(f"{line}.classList.contains('here')")
    page.run("explorer.tabs.open('summary'); document.querySelector('.details .chain button').click()")
    assert page.run("explorer.tabs.current") == "source"


def test_every_view_shows_something(page: Browser) -> None:
    for key in page.run("explorer.tabs.views.map((v) => v[0])"):
        page.run(f"explorer.tabs.open('{key}')")
        settle(page)
        assert page.run("document.querySelector('.panel').innerText.length") > 80, key
        assert page.run("!/undefined|NaN|\\[object/.test(document.querySelector('.panel').innerText)"), key
    assert page.run("!/undefined|NaN|\\[object/.test(document.body.innerText)")


def test_memory_leads_to_events(page: Browser) -> None:
    page.run("explorer.tabs.open('memory')")
    page.run("[...document.querySelectorAll('.panel tbody tr')].find((r) => /^t[02]_/.test(r.textContent)).click()")
    assert page.run("explorer.shared.maskText").startswith("t")


def test_colours_of_tensors_are_lines_that_made_them(page: Browser) -> None:
    page.run("explorer.tabs.open('memory')")
    settle(page)
    legend = "[...document.querySelectorAll('.panel .legend li')].map((item) => item.textContent)"
    assert page.run(legend) == [f"kernels.py:{line} (25)" for line in (31, 32, 25, 26)]
    choose = (
        "(() => {{ const s = document.querySelector('[aria-label=\"Memory\"]');"
        " s.value = '{}'; s.dispatchEvent(new Event('change')); }})()"
    )
    page.run(choose.format("shared_hbm"))
    assert page.run("document.querySelector('.panel .legend').hidden"), "one line made all of them"


def test_bars_of_the_source_say_what_their_colours_are(page: Browser) -> None:
    page.run("explorer.tabs.open('source')")
    legend = page.run("[...document.querySelectorAll('.panel .legend li')].map((item) => item.textContent)")
    assert legend == ["Tensor", "Vector", "Scalar", "GpSimd", "DMA"]


def test_each_operand_has_a_line(page: Browser) -> None:
    page.run("explorer.shared.select(explorer.models[0], 4)")
    text = page.run("document.querySelector('.details dd.lines').innerText")
    assert [line.partition("=")[0] for line in text.splitlines()] == ["dst", "data"]
    assert "float32[128, 512]@sbuf" in text.splitlines()[0]


def test_a_table_is_there_before_anything_is_asked(page: Browser) -> None:
    page.run("explorer.tabs.open('query')")
    assert page.run("document.querySelectorAll('.panel tbody tr').length") > 0
    page.run("document.querySelector('.panel input').value = 'wait_ns >'")
    page.run("[...document.querySelectorAll('.panel button')].find((b) => b.textContent === 'Find').click()")
    assert page.run("document.querySelectorAll('.panel [role=alert]').length") == 1


def test_advice_says_when_there_may_be_more_instructions(page: Browser) -> None:
    shows = "[99, 100, 101].map((n) => showsOf(new Array(n)))"
    assert page.run(shows) == ["Show 99 instructions", "Show the 100 costliest", "Show 101 instructions"]


def test_tables_sort_and_filter(page: Browser) -> None:
    page.run("explorer.tabs.open('operators')")
    heads = "[...document.querySelectorAll('.panel th button')]"
    page.run(f"{heads}.find((b) => b.textContent === 'waited').click()")
    cells = page.run("[...document.querySelectorAll('.panel tbody tr')].map((r) => r.cells[0].textContent)")
    assert cells[-1] == "nisa.iota", "it waits for nothing"
    assert page.run("document.querySelector('.panel th[aria-sort=descending]').textContent") == "waited"
    assert len(cells) == 5
    page.run(
        "(() => { const i = document.querySelector('.panel input[type=search]');"
        " i.value = 'mat'; i.dispatchEvent(new Event('input')); })()"
    )
    assert page.run("document.querySelectorAll('.panel tbody tr').length") == 1


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
    import pyarrow.parquet as pq

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


def test_going_to_an_event_brings_its_lane_into_sight(page: Browser) -> None:
    row = page.run("explorer.models[0].rows - 2")
    page.run("explorer.timelines[0].hidden.add(1); explorer.timelines[0].layout(); explorer.timelines[0].draw(true)")
    page.run(f"explorer.shared.reveal(explorer.models[0], {row})")
    settle(page)
    place_x, place_y = place(page, row)
    box = page.run("(({left, top, right, bottom}) => [left, top, right, bottom])"
                   "(explorer.timelines[0].scroller.getBoundingClientRect())")  # fmt: skip
    assert box[0] < place_x < box[2]
    assert box[1] < place_y < box[3]
    page.click(place_x, place_y)
    assert selected(page) == row


def test_the_app_has_sql(running: Running) -> None:
    with Browser() as page:
        page.open(running.url)
        page.run("explorer.tabs.open('query')")
        page.run(
            "document.querySelector('textarea').value = 'SELECT id, opcode FROM instructions WHERE id < 3 ORDER BY id'"
        )
        page.run("document.querySelector('.panel button.main').click()")
        page.wait("document.querySelectorAll('.panel tbody tr').length === 3")
        page.run("document.querySelectorAll('.panel tbody tr')[2].click()")
        assert selected(page) == 2
        page.run(
            "document.querySelector('textarea').value = 'DROP TABLE edges';"
            "document.querySelector('.panel button.main').click()"
        )
        page.wait("Boolean(document.querySelector('.panel .error'))")
        assert "not authorized" in page.run("document.querySelector('.panel .error').textContent")
        assert all(url.startswith(running.url) for url in page.requests)
        assert [text for text in page.messages if "400" not in text] == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (820, 1180), (2560, 1440)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(file: Path, width: int, height: int, dark: bool) -> None:
    with Browser(width, height, dark=dark, mobile=width < 500) as page:
        page.open_file(file)
        page.run("explorer.shared.select(explorer.models[0], 4)")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.querySelector('.tl-base').clientHeight") > 150
        # the theme is the one that was asked for
        light = page.run(
            "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).every((v) => v > 128)"
        )
        assert light is not dark
        page.run("document.querySelector('header > button').click()")
        assert page.run("document.documentElement.dataset.theme") == ("light" if dark else "dark")


def test_the_page_can_be_used_without_a_mouse(page: Browser) -> None:
    unnamed = page.run("""[...document.querySelectorAll('button, input, select, textarea, [role]')]
      .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim()))
      .filter((e) => !(e.getAttribute('aria-labelledby') || e.getAttribute('role') === 'status'))
      .map((e) => e.outerHTML.slice(0, 100))""")
    assert unnamed == []
    assert page.run("[...document.querySelectorAll('th')].every((h) => h.scope === 'col')")
    page.run("document.getElementById('tab-summary').focus()")
    page.key("ArrowRight")
    assert page.run("document.activeElement.id") == "tab-source"
    assert page.run("document.activeElement.getAttribute('aria-selected')") == "true"


def test_the_address_brings_back_what_was_seen(file: Path) -> None:
    with Browser() as page:
        page.open(file.as_uri() + "#view=1000,5000&tab=memory&event=0,7")
        assert page.run("[explorer.shared.view.from, explorer.shared.view.to]") == [1000, 5000]
        assert page.run("explorer.tabs.current") == "memory"
        assert selected(page) == 7


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
        for key in page.run("explorer.tabs.views.map((v) => v[0])"):
            page.run(f"explorer.tabs.open('{key}')")
            settle(page)
        page.run("explorer.timelines[0].over.focus()")
        for key in "wasd.,npfm0":
            page.key(key)
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
        for key in page.run("explorer.tabs.views.map((v) => v[0])"):
            page.run(f"explorer.tabs.open('{key}')")
            settle(page)
            assert page.run("!/undefined|NaN|\\[object|function/.test(document.querySelector('.panel').innerText)"), key
        page.run("explorer.shared.select(explorer.models[0], 4)")
        page.run("explorer.timelines[0].over.focus()")
        for pressed in "wasd.,npfm0":
            page.key(pressed)
        assert page.messages == []


def test_zooming_stays_fluid(tmp_path: Path) -> None:
    """Drawing a frame of many events; bounds are wide, since other programs run beside this one."""
    file = tmp_path / "large.html"
    file.write_text(report(from_folders([make(tmp_path / "p", 20_000, queues=16)])), encoding="utf-8")
    with Browser() as page:
        page.open_file(file)
        times = page.run("""(async () => {
          const { shared, timelines: [t] } = explorer, next = () => new Promise(requestAnimationFrame);
          t.frames.length = 0;
          for (let i = 0; i < 60; i++) { shared.zoom(0.9, shared.longest / 3); await next(); }
          await next();
          return t.frames.sort((a, b) => a - b);
        })()""")
        assert len(times) > 30
        assert times[len(times) // 2] < 16, "ms for half of the frames"


def test_addresses_can_be_zoomed(page: Browser) -> None:
    page.run("explorer.tabs.open('memory')")
    settle(page)
    left, top = page.run("(({left, top}) => [left, top])(document.querySelector('canvas.mem').getBoundingClientRect())")
    view = page.run("({...explorer.shared.view})")
    before = pixels_of(page, "canvas.mem")
    for _ in range(5):
        page.mouse("mouseWheel", left + 400, top + 200, deltaX=0, deltaY=-200, modifiers=2)
        settle(page)
    assert pixels_of(page, "canvas.mem") != before
    assert page.run("({...explorer.shared.view})") == view, "the time stays"
    for _ in range(12):
        page.mouse("mouseWheel", left + 400, top + 200, deltaX=0, deltaY=400, modifiers=2)
    settle(page)
    settle(page)
    assert pixels_of(page, "canvas.mem") == before, "all the way out is all of it"


def pixels_of(page: Browser, selector: str) -> str:
    picture: str = page.run(f"document.querySelector('{selector}').toDataURL()")
    return picture


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


def test_a_selection_scrolls_the_panel_and_not_the_page(file: Path) -> None:
    with Browser(390, 844, mobile=True) as page:
        page.open_file(file)
        page.run("explorer.tabs.open('source')")
        page.run("explorer.shared.select(explorer.models[0], 7)")
        settle(page)
        assert page.run("window.scrollY") == 0
        assert page.run("document.querySelectorAll('tr.here').length") == 1
