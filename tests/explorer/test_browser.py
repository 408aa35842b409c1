"""The pages as people use them, in a headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.explorer.report import report
from nki.explorer.shown import from_folders
from tests.explorer.browser import Browser, place, selected, settle
from tests.explorer.conftest import Running
from tests.explorer.folders import make

pytestmark = pytest.mark.usefixtures("browser")


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


def test_a_selection_scrolls_the_panel_and_not_the_page(file: Path) -> None:
    with Browser(390, 844, mobile=True) as page:
        page.open_file(file)
        page.run("explorer.tabs.open('source')")
        page.run("explorer.shared.select(explorer.models[0], 7)")
        settle(page)
        assert page.run("window.scrollY") == 0
        assert page.run("document.querySelectorAll('tr.here').length") == 1
