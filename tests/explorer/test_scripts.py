"""The parts of the front end that need no page, run by Node on a profile and compared with plain Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nki.explorer.assets import SCRIPTS, read
from nki.explorer.shown import Shown, from_folders
from nki.profiling.formats.model_labels import layers
from tests.explorer.conftest import NODE
from tests.profiling.models import modules_profile

pytestmark = pytest.mark.usefixtures("node")


PARTS = ("base", "decode", "lane", "model", "filter")
Row = dict[str, Any]


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The value of an expression with `model`, the profile."""
    (shown,) = from_folders([folder])
    return evaluator(shown, tmp_path_factory.mktemp("scripts"))


def evaluator(shown: Shown, place: Path) -> Callable[[str], Any]:
    """What evaluates expressions with `model`, a profile."""
    (place / "block").write_bytes(shown.block())
    parts = "\n".join(read(f"{name}.js") for name in PARTS)

    def evaluate(expression: str) -> Any:
        script = f"""{parts}
        (async () => {{
          const block = require("fs").readFileSync({json.dumps(str(place / "block"))});
          const model = new Model(decode(await inflate(block)), "x");
          console.log(JSON.stringify({expression}));
        }})();"""
        (place / "run.cjs").write_text(script, encoding="utf-8")
        done = subprocess.run(
            [NODE or "", str(place / "run.cjs")], capture_output=True, check=False, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return evaluate


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    (shown,) = from_folders([folder])
    return list(shown.profile["instructions"].rows())


def test_all_scripts_are_there() -> None:
    static = Path(__file__).parents[2] / "src/nki/explorer/static"
    assert sorted(SCRIPTS) == sorted(path.stem for path in static.glob("*.js"))


def test_tables_are_read_back(run: Callable[[str], Any], folder: Path) -> None:
    (shown,) = from_folders([folder])
    found = run(
        "Object.values(model.tables).map((t) => [t.name, t.rows, Object.fromEntries(t.meta.map((m) =>"
        " [m.name, Array.from({length: t.rows}, (_, row) => t.value(m, row))]))])"
    )
    for name, count, columns in found:
        table = shown.profile[name]
        assert count == len(table)
        for column, values in columns.items():
            wanted = table[column] if isinstance(table[column], list) else table[column].tolist()
            if wanted and isinstance(wanted[0], float):
                wanted = pytest.approx(wanted, abs=6e-4, rel=1e-14)
            assert values == wanted, (name, column)


FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("engine = vector", lambda r: r["engine"] == "vector"),
    ("engine != dma and wait_ns > 500", lambda r: r["engine"] != "dma" and r["wait_ns"] > 500),
    ("engine = vector or engine = scalar", lambda r: r["engine"] in ("vector", "scalar")),
    ("not (engine = dma) and core = 1", lambda r: r["engine"] != "dma" and r["core"] == 1),
    (
        "engine = dma or engine = vector and core = 1",
        lambda r: r["engine"] == "dma" or (r["engine"] == "vector" and r["core"] == 1),
    ),
    ("opcode ~ ^nisa.nc_", lambda r: r["opcode"].startswith("nisa.nc_")),
    ('operands : "T2_0:"', lambda r: "t2_0:" in r["operands"]),
    ("start_ns >= 1000 and start_ns <= 9000", lambda r: 1000 <= r["start_ns"] <= 9000),
    ("line = kernels.py:24", lambda r: r["source"] == 6),
    ("vector", lambda r: "vector" in r["engine"] or r["source"] == -1),
    ("/^dma[12]$/", lambda r: r["queue"] in ("dma1", "dma2")),
    ("MATMUL", lambda r: "matmul" in r["opcode"]),
    ("nl.exp", lambda r: r["source"] == 8),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), FILTERS, ids=[text for text, _ in FILTERS])
def test_searches(run: Callable[[str], Any], rows: list[Row], text: str, wanted: Callable[[Row], bool]) -> None:
    expected = [row["id"] for row in rows if wanted(row)]
    assert expected
    assert run(f"search(model, {json.dumps(text)})") == expected


@pytest.mark.parametrize(
    "text",
    [
        "engine = ", "engine", "(engine = dma", "engine = dma)", "nothing = 1", "wait_ns = many", "engine ~ (", "= 1",
        '"a" b', "engine = dma and", 'x = "',
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_filter_is_said(run: Callable[[str], Any], text: str) -> None:
    script = f"""(() => {{
      try {{ filterRows({json.dumps(text)}, model.inst); return ""; }}
      catch (problem) {{ return problem instanceof FilterError ? problem.message : "CRASH " + problem; }}
    }})()"""
    message = run(script)
    assert message
    assert not message.startswith("CRASH")


def test_neighbours(run: Callable[[str], Any], folder: Path) -> None:
    (shown,) = from_folders([folder])
    wanted: dict[int, list[list[int]]] = {row: [[], []] for row in range(len(shown.profile["instructions"]))}
    for edge in shown.profile["edges"].rows():
        wanted[edge["consumer"]][0].append(edge["producer"])
        wanted[edge["producer"]][1].append(edge["consumer"])
    found = run(
        "Array.from({length: model.rows}, (_, row) =>"
        " [model.predecessors(row), model.successors(row)].map((all) => all.map((one) => one.row)))"
    )
    assert [[sorted(part) for part in both] for both in found] == [
        [sorted(part) for part in wanted[row]] for row in wanted
    ]


def test_lanes_have_all_events_in_order(run: Callable[[str], Any], rows: list[Row]) -> None:
    found = run("model.lanes.map((lane) => [lane.core, lane.queue, [...lane.rows], [...lane.start]])")
    assert len(found) == len({(row["core"], row["queue"]) for row in rows} | {(0, "sync"), (1, "sync")})
    for core, queue, events, starts in found:
        assert starts == sorted(starts)
        if queue != "sync":
            assert sorted(events) == [row["id"] for row in rows if (row["core"], row["queue"]) == (core, queue)]
    assert [queue for core, queue, *_ in found if core == 0][:5] == ["tensor", "vector", "scalar", "gpsimd", "sync"]


def test_bins_add_up_to_the_busy_time(run: Callable[[str], Any], rows: list[Row]) -> None:
    """Whatever the level of detail, no time is lost."""
    found = run(
        "model.lanes.filter((lane) => lane.queue !== 'sync').map((lane) => [lane.core, lane.queue,"
        " lane.pyramid(model.makespan, model.colouring('engine').colours).map(({ ns }) =>"
        " (ns.reduce((a, b) => a + b, 0) * model.makespan) / ns.length)])"
    )
    for core, queue, levels in found:
        busy = sum(row["end_ns"] - row["move_ns"] for row in rows if (row["core"], row["queue"]) == (core, queue))
        assert len(levels) > 5
        assert levels == pytest.approx([busy] * len(levels), rel=1e-4)


def test_hits(run: Callable[[str], Any], rows: list[Row]) -> None:
    mine = [row for row in rows if (row["core"], row["queue"]) == (1, "vector")]
    times = [(row["start_ns"] + row["end_ns"]) / 2 for row in mine]
    hit = f"model.lanes.find((lane) => lane.core === 1 && lane.queue === 'vector')"  # noqa: F541
    assert run(f"{json.dumps(times)}.map((when) => {hit}.hit(when, 0))") == [row["id"] for row in mine]
    assert run(f"{hit}.hit(-50, 10)") == -1
    first = mine[0]
    assert run(f"{hit}.hit({first['start_ns'] - 4}, 10)") == first["id"]


def test_sums_by_instruction(run: Callable[[str], Any], rows: list[Row]) -> None:
    found = run("model.operators((row) => model.inst.columns.opcode.at(row))")
    for one in found:
        mine = [row for row in rows if row["opcode"] == one["key"]]
        assert one["count"] == len(mine)
        assert one["busy"] == pytest.approx(sum((row["end_ns"] - row["move_ns"]) * row["runs"] for row in mine))
        assert one["wait"] == pytest.approx(sum(row["wait_ns"] for row in mine))
    assert [one["busy"] for one in found] == sorted((one["busy"] for one in found), reverse=True)


def test_kernels_of_a_model_are_called_by_the_module_that_has_most(tmp_path: Path) -> None:
    profile = modules_profile()
    run = evaluator(Shown(profile, "model"), tmp_path)
    wanted = {str(number): name for number, name in layers(profile).items()}
    found = run("Object.fromEntries([...model.kernels].map(([number, one]) => [number, one.module]))")
    assert {number: text.split(" ")[0] for number, text in found.items()} == wanted
    sums = run("model.operators((row) => model.kernelOf(row).module)")
    assert sum(one["critical"] for one in sums) == pytest.approx(profile["instructions"]["critical_ns"].sum())


def test_csv_is_safe_for_spreadsheets(run: Callable[[str], Any]) -> None:
    text = run("""csv([["=1+1", 'a"b', -3, "x,y"], ["@sum", "+1", "-1", "line\\nbreak"]])""")
    assert text == '\'=1+1,"a""b",-3,"x,y"\n\'@sum,\'+1,\'-1,"line\nbreak"\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"), (12.3456, "12.35 ns"), (999, "999 ns"), (1000, "1 µs"), (1234567, "1.235 ms"), (2.5e9, "2.5 s"),
        (-1500, "-1.5 µs"),
    ],
)  # fmt: skip
def test_times_for_people(run: Callable[[str], Any], value: float, text: str) -> None:
    assert run(f"time({value})") == text
