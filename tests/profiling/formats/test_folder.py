"""The folder is read back as it was written, and everything else is refused with a code."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nki.core.errors import ArtifactError, NkiError, UsageError
from nki.explorer.report import report
from nki.explorer.shown import Shown
from nki.profiling.formats import folder as reader
from nki.profiling.record import Profile
from nki.profiling.schema import TABLES
from tests.profiling.support import LOOPING, PIPELINE, looping, pipeline, profiled


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "pipeline"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
        profiled(pipeline, *PIPELINE).save(path)
    return path


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


@pytest.mark.parametrize("kernel,arguments", [(pipeline, PIPELINE), (looping, LOOPING)])
def test_what_is_read_is_what_was_written(kernel: Any, arguments: Any, tmp_path: Path) -> None:
    before = profiled(kernel, *arguments)
    before.save(tmp_path / "a" / "b")
    after = Profile.load(tmp_path / "a" / "b")
    assert after.to_json() == before.to_json()
    assert after.summary() == before.summary()
    for name, table in before.tables.items():
        assert list(after[name].rows()) == list(table.rows())


def test_an_earlier_profile_is_replaced(folder: Path) -> None:
    after = profiled(looping, *LOOPING)
    after.save(folder)
    assert Profile.load(folder).to_json() == after.to_json()


def test_the_types_on_disk(written: Path) -> None:
    types = {"int": "int64", "float": "double", "text": "string", "bool": "bool"}
    for name, columns in TABLES.items():
        schema = pq.read_schema(written / f"{name}.parquet")
        assert [(f.name, str(f.type)) for f in schema] == [(c.name, types[c.kind]) for c in columns]
        assert not any(field.nullable for field in schema)


def refused(folder: Path, code: str) -> str:
    with pytest.raises(ArtifactError) as caught:
        Profile.load(folder)
    assert caught.value.code == code, caught.value
    assert caught.value.fix
    assert caught.value.message.replace("\n", "").isprintable(), "a terminal shows it"
    return caught.value.message


def about(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "profile.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def hardware(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "profile.json"
        data = json.loads(path.read_text())
        data["hardware"].update(changes)
        path.write_text(json.dumps(data))

    return change


def totals(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "profile.json"
        data = json.loads(path.read_text())
        data["totals"][0].update(changes)
        path.write_text(json.dumps(data))

    return change


def column(table: str, name: str, edit: Callable[[list[Any]], list[Any]], kind: Any = None) -> Callable[[Path], None]:
    """Write a table again with one column changed."""

    def change(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        read = pq.read_table(path)
        at = read.column_names.index(name)
        kept = kind or read.schema.field(at).type
        values = pa.array(edit(read.column(at).to_pylist()), kept)
        pq.write_table(read.set_column(at, pa.field(name, kept), values), path)

    return change


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


def renamed(folder: Path) -> None:
    path = folder / "dma.parquet"
    read = pq.read_table(path)
    pq.write_table(read.rename_columns(["kernel", *read.column_names[1:]]), path)


def shorter(folder: Path) -> None:
    path = folder / "path.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["kind"]), path)


def text(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def truncated(folder: Path) -> None:
    path = folder / "instructions.parquet"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(folder: Path) -> None:
    """Bytes of the first page are others."""
    path = folder / "instructions.parquet"
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(255 - byte for byte in data[4:2000])
    path.write_bytes(data)


def linked(folder: Path) -> None:
    (folder / "dma.parquet").rename(folder / "other.parquet")
    (folder / "dma.parquet").symlink_to(folder / "other.parquet")


def piped(folder: Path) -> None:
    (folder / "dma.parquet").unlink()
    os.mkfifo(folder / "dma.parquet")


def folded(folder: Path) -> None:
    (folder / "dma.parquet").unlink()
    (folder / "dma.parquet").mkdir()


DAMAGE: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "no folder": ("profile.folder", shutil.rmtree),
    "no table": ("profile.folder", lambda folder: (folder / "edges.parquet").unlink()),
    "a link": ("profile.folder", linked),
    "a pipe": ("profile.folder", piped),
    "a directory": (
        "profile.folder",
        lambda folder: ((folder / "dma.parquet").unlink(), (folder / "dma.parquet").mkdir()),
    ),
    "truncated": ("profile.folder", truncated),
    "flipped": ("profile.folder", flipped),
    "no Parquet": ("profile.folder", text("dma.parquet", b"PAR1 and nothing else")),
    "an empty file": ("profile.folder", text("dma.parquet", b"")),
    "no JSON": ("profile.folder", text("profile.json", b"{")),
    "no UTF-8": ("profile.folder", text("profile.json", b"\xff\xfe")),
    "deep JSON": ("profile.folder", text("profile.json", b"[" * 200_000)),
    "a list": ("profile.folder", text("profile.json", b"[]")),
    "NaN in JSON": ("profile.folder", text("profile.json", b'{"makespan_ns": NaN}')),
    "another format": ("profile.folder", about(format="other")),
    "another version": ("profile.version", about(version=1)),
    "version true": ("profile.version", about(version=True)),
    "simulated or not": ("profile.values", about(is_simulation="no")),
    "no kernel": ("profile.values", about(kernel=7)),
    "many cores": ("profile.values", about(cores=10**9)),
    "a huge number": ("profile.values", about(makespan_ns=10**400)),
    "negative time": ("profile.values", about(makespan_ns=-1.0)),
    "totals as text": ("profile.values", about(totals=["x"])),
    "no hardware": ("profile.values", about(hardware={})),
    "no bounds": ("profile.values", totals(bounds=None)),
    "bytes as text": ("profile.values", totals(dma_bytes="1")),
    "advice as text": ("profile.values", about(advice=["buy"])),
    "another column": ("profile.table", renamed),
    "a column less": ("profile.table", shorter),
    "another type": ("profile.table", column("dma", "nbytes", lambda v: [float(x) for x in v], pa.float64())),
    "a null": ("profile.values", column("dma", "nbytes", first(None))),
    "not finite": ("profile.values", column("instructions", "end_ns", first(float("inf")))),
    "before the start": ("profile.values", column("instructions", "start_ns", first(-1.0))),
    "backwards": ("profile.values", column("instructions", "start_ns", first(1e9))),
    "no such wait": ("profile.values", column("instructions", "wait_kind", first("boredom"))),
    "no such instruction": ("profile.values", column("edges", "producer", first(10**6))),
    "no such line": ("profile.values", column("instructions", "source", first(10**6))),
    "no such core": ("profile.values", column("time", "core", first(1))),
    "ids that jump": ("profile.values", column("instructions", "id", first(5))),
    "a line that calls itself": ("profile.values", column("sources", "parent", first(0))),
    "a long text": ("profile.values", column("sources", "text", first("x" * 200_000))),
    "no such engine": ("profile.values", column("instructions", "engine", first("constructor"))),
    "no such queue": ("profile.values", column("instructions", "queue", first("dma²"))),
    "a queue without end": ("profile.values", column("dma", "queue", first("dma99999999999999999999"))),
    "no such trigger": ("profile.values", column("dma", "trigger", first("tensor waits"))),
    "no such track": ("profile.values", column("time", "track", first("__proto__"))),
    "no such category": ("profile.values", column("time", "category", first("toString"))),
    "no such region": ("profile.values", column("memory", "region", first("registers"))),
    "after the end of the world": ("profile.values", column("instructions", "visible_ns", first(1e16))),
    "a sample after it": ("profile.values", column("counters", "time_ns", lambda v: [1e300] * len(v))),
    "a table before the start": ("profile.values", column("instructions", "table_ns", first(1e12))),
    "a number without end": ("profile.values", column("counters", "value", first(1e300))),
    "bytes below nothing": ("profile.values", column("dma", "nbytes", first(-2))),
    "bytes that no double has": ("profile.values", column("memory", "nbytes", first(2**53 + 2))),
    "an escape in a table": ("profile.values", column("instructions", "opcode", first("\x1b[2J"))),
    "an escape in a category": ("profile.values", column("time", "category", first("\x1b[2J"))),
    "an escape in JSON": ("profile.values", about(kernel="\x1b]0;title\x07")),
    "an escape as version": ("profile.version", about(version="\x1b[2J")),
    "an escape as a key": ("profile.values", totals(units={"\x1b[2J": 1.0})),
    "half a character": ("profile.values", about(kernel="a\ud800b")),
    "half a character as version": ("profile.version", about(version="\ud800")),
    "many units": ("profile.values", totals(units={f"unit {n}": 1.0 for n in range(5000)})),
    "many peaks": ("profile.values", hardware(peak_tflops={"bfloat16": 1.0, **{f"p{n}": 1.0 for n in range(5000)}})),
    "peaks as text": ("profile.values", hardware(peak_tflops={"bfloat16": 1.0, "float8": "fast"})),
    "no clocks": ("profile.values", hardware(ghz="quick")),
    "no DMA engines": ("profile.values", hardware(dma_engines=None)),
    "a title as object": ("profile.values", hardware(title={"a": 1})),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_cannot_be_a_profile_is_refused(what: str, folder: Path) -> None:
    code, damage = DAMAGE[what]
    damage(folder)
    assert refused(folder, code)


def times(value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in ("visible_ns", "end_ns", "move_ns", "start_ns"):
            column("instructions", name, lambda values: [value] * len(values))(folder)

    return change


def every(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value] * len(values)


EXTREME: dict[str, Callable[[Path], Any]] = {
    "late": times(1e15),
    "often": column("instructions", "runs", every(1e30)),
    "long": about(makespan_ns=1e30, launch_ns=1e30),
    "no time at all": about(makespan_ns=0),
    "high": column("counters", "value", every(1e30)),
    "many bytes": column("dma", "nbytes", every(2**53)),
    "large": column("memory", "nbytes", every(2**53)),
    "many descriptors": column("dma", "descriptors", every(2**53)),
    "wide": column("memory", "partitions", every(2**53)),
    "far": column("memory", "address", every(2**53)),
    "a late line": column("sources", "line", every(2**53)),
    "no bytes": column("dma", "nbytes", every(0)),
    "no size": column("memory", "nbytes", every(0)),
    "unknown counters": column("counters", "counter", every("constructor")),
    "unknown opcodes": column("instructions", "opcode", every("__proto__")),
    "strange units": totals(units={"__proto__": 1.0, "constructor": 2.0}, bounds={"toString": 1.0}),
    "fast": hardware(base_ghz=1e30, dma_engines=1e30, pe_rows=1e30, psum_banks=1e30, peak_tflops={"bfloat16": 1e-12}),
    "slow": hardware(hbm_bytes_per_ns=1e-12, dma_bytes_per_ns=1e-12, sbuf_bytes_per_partition=1e-12),
    "deep": hardware(more=json.loads("[" * 400 + "]" * 400)),
}


@pytest.mark.parametrize("what", EXTREME)
def test_what_is_read_can_be_shown_and_written(what: str, folder: Path, tmp_path: Path) -> None:
    """Whatever a folder says within the limits: every output works, or says which value it cannot have."""
    EXTREME[what](folder)
    profile = Profile.load(folder)
    assert profile.summary().encode()
    json.dumps(profile.to_json(), allow_nan=False)
    profile.save(tmp_path / "again")
    assert Profile.load(tmp_path / "again").to_json() == profile.to_json()
    profile.csv(tmp_path / "csv")
    profile.perfetto(tmp_path / "trace.pftrace")
    assert report([Shown(profile, what)])
    try:
        profile.explorer(tmp_path / "explorer")
    except ArtifactError as error:
        assert error.code == "profile.values"
        assert "too large" in error.message


def test_no_file_outside_the_folder_is_opened(written: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.profiling.formats.opened_files", str(written), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    opened = json.loads(done.stdout)
    assert opened.keys() == DAMAGE.keys() | EXTREME.keys()
    assert {what for what, (count, _) in opened.items() if not count} <= {"no folder"}
    assert {what: strangers for what, (_, strangers) in opened.items() if strangers} == {}


@pytest.mark.parametrize("name,value", [("parent", 0), ("parent", -2), ("after", 10**9), ("steady_ns", -1.0)])
def test_loops_that_cannot_be(name: str, value: Any, tmp_path: Path) -> None:
    folder = tmp_path / "looping"
    profiled(looping, *LOOPING).save(folder)
    assert len(Profile.load(folder)["loops"]) == 2
    column("loops", name, first(value))(folder)
    refused(folder, "profile.values")


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_is_refused_or_harmless(seed: int, folder: Path) -> None:
    """Other bytes, in the middle or where Parquet keeps its schema; never an exception of another kind."""
    chance = random.Random(seed)
    files = sorted(folder.iterdir())
    refusals = 0
    for _ in range(25):
        path = chance.choice(files)
        whole = path.read_bytes()
        data = bytearray(whole)
        span = min(len(data), chance.choice([600, len(data)]))
        for _ in range(chance.choice([1, 3])):
            data[-1 - chance.randrange(span)] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        try:
            Profile.load(folder).summary()
        except NkiError as error:
            assert error.code.startswith("profile.")
            refusals += 1
        path.write_bytes(whole)
    assert refusals > 5
    assert Profile.load(folder).about.kernel == "pipeline"


def test_advice_about_what_is_not_there(folder: Path) -> None:
    data = json.loads((folder / "profile.json").read_text())
    data["advice"][0]["instructions"] = [10**6]
    (folder / "profile.json").write_text(json.dumps(data))
    refused(folder, "profile.values")


@pytest.mark.parametrize(
    "name,limit", [("MOST_FILE", 100), ("MOST_ROWS", 5), ("MOST_BYTES", 1000), ("MOST_ABOUT", 100)]
)
def test_sizes_are_checked_before_anything_is_unpacked(
    name: str, limit: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, name, limit)
    assert str(limit) in refused(folder, "profile.size")


def test_a_small_file_of_many_rows_is_refused(folder: Path) -> None:
    """Rows that are all equal take almost no bytes on disk."""
    path = folder / "counters.parquet"
    wanted = pq.read_schema(path)
    count = 700_000
    equal = {"int64": pa.repeat(0, count), "double": pa.repeat(0.0, count), "string": pa.repeat("x", count)}
    piece = pa.table([equal[str(field.type)] for field in wanted], schema=wanted)
    with pq.ParquetWriter(path, wanted, compression="zstd") as writer:
        for _ in range(30):
            writer.write_table(piece)
    assert path.stat().st_size < 1 << 20
    assert "21000000 rows" in refused(folder, "profile.size")


def test_other_files_are_not_looked_at(folder: Path) -> None:
    (folder / "notes.txt").symlink_to("/etc/hostname")
    (folder / "code.py").write_text("raise SystemExit")
    (folder / "extra.parquet").write_bytes(b"?")
    assert Profile.load(folder).about.kernel == "pipeline"


def test_file_names_in_a_profile_are_only_text(folder: Path) -> None:
    column("sources", "file", lambda values: ["/etc/shadow"] * len(values))(folder)
    assert set(Profile.load(folder)["sources"]["file"]) == {"/etc/shadow"}
    assert "shadow:" in Profile.load(folder).summary()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError) as caught:
        profiled(looping, *LOOPING).save(tmp_path / "x")
    assert caught.value.code == "profile.write"


def test_a_link_is_replaced_and_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (folder / "dma.parquet").unlink()
    (folder / "dma.parquet").symlink_to(tmp_path / "mine")
    profiled(looping, *LOOPING).save(folder)
    assert (tmp_path / "mine").read_text() == "mine"


def test_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    for name in [
        name for name in sys.modules if name in ("nki.profiling.formats.folder", "pyarrow", "pyarrow.parquet")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError) as caught:
        Profile.load(tmp_path)
    assert caught.value.code == "profile.extra"
    assert caught.value.fix.endswith("[profile]'") and "pip install -e " in caught.value.fix


def test_a_text_that_a_small_file_repeats_is_counted_as_often(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some bytes of the file, and as many as it says in memory."""
    count, file = 100_000, folder / "sources.parquet"
    equal = {"int64": pa.repeat(0, count), "double": pa.repeat(0.0, count), "string": pa.repeat("x" * 1000, count)}
    schema = pq.read_schema(file)
    pq.write_table(pa.table([equal[str(field.type)] for field in schema], schema=schema), file, store_schema=False)
    assert file.stat().st_size < 100_000
    monkeypatch.setattr(reader, "MOST_BYTES", 10 * count * 8)
    assert "unpacks to more than" in refused(folder, "profile.size")
