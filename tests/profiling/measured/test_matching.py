"""A profile that is written from the schema's document alone is read, and its instructions are those of the kernel."""

from __future__ import annotations

import inspect
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArtifactError
from nki.profiling.measured.alignment import Side, common, equals
from nki.profiling.measured.comparison import Comparison, compare
from nki.profiling.record import Profile
from tests.profiling.measured.written import Tape, write
from tests.profiling.support import array, hbm, loaded, looping, profiled, psum, sbuf


def kernel(a: Any, weights: Any) -> Any:
    """Three tiles: loaded, multiplied, activated, doubled, stored."""
    out = hbm((128, a.shape[1]), nl.bfloat16)
    w = sbuf((128, 128), nl.bfloat16)
    nisa.dma_copy(dst=w, src=weights)
    for start in range(0, a.shape[1], 512):
        x, product, y = sbuf((128, 512), nl.bfloat16), psum((128, 512)), sbuf((128, 512), nl.bfloat16)
        nisa.dma_copy(dst=x, src=a[:, start : start + 512])
        nisa.nc_matmul(dst=product, stationary=w, moving=x)
        nisa.activation(dst=y, op=nl.exp, data=product)
        nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, start : start + 512], src=y)
    return out


LINES, FIRST = inspect.getsourcelines(kernel)


def at(text: str) -> str:
    """Where the capture says that a line is: under another folder."""
    return f"/home/ubuntu/kernels/test_matching.py:{FIRST + next(n for n, line in enumerate(LINES) if text in line)}"


@pytest.fixture(scope="module")
def predicted() -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
        return profiled(kernel, array(128, 1536, dtype=nl.bfloat16), array(128, 128, dtype=nl.bfloat16))


def captured(skip: str = "", extra: bool = False, lines: bool = True) -> Tape:
    """The kernel as a device might have run it, with other times than the model's."""
    tape = Tape()

    def where(text: str) -> str:
        return at(text) if lines else ""

    tape.run("Sync", "EVENT_SEMAPHORE", 10_000, 40)
    tape.move("Sync", 10_050, 11_000, 11_900, 32_768, where("src=weights"))
    for tile in range(3):
        begin = 12_000 + 3_000 * tile
        tape.move("Sync", begin, begin + 1_000, begin + 1_700, 131_072, where("src=a["))
        if skip != f"tile {tile}":
            tape.run("Tensor", "LDWEIGHTS", begin + 1_800, 60, where("nc_matmul"))
            tape.run("Tensor", "MATMUL", begin + 1_870, 400 if tile == 0 else 220, where("nc_matmul"))
        tape.run("Scalar", "ACTIVATE", begin + 2_300, 700, where("nisa.activation"))
        if extra:
            tape.run("Vector", "MEMSET", begin + 2_900, 100, "/home/ubuntu/kernels/other.py:3")
        tape.run("Vector", "TENSOR_SCALAR", begin + 3_010, 310, where("tensor_scalar"))
        tape.move("Sync", begin + 3_400, begin + 4_400, begin + 5_100, 131_072, where("dst=out["))
    return tape


def compared(predicted: Profile, tape: Tape, folder: Path, **metadata: Any) -> Comparison:
    write(folder, tape.tables(**metadata))
    return compare(predicted, folder)


def all_by_line(told: dict[str, Any], count: int = 19) -> bool:
    """In whatever order the compiler puts loads and stores."""
    found = told["matched"]
    return set(found) <= {"line", "moved"} and found["line"] >= count - 2 and sum(found.values()) == count


def test_what_the_document_describes_is_read_and_matched(predicted: Profile, tmp_path: Path) -> None:
    found = compared(predicted, captured(), tmp_path)
    told = found.to_json()
    assert all_by_line(told), "the tables have no bytes: kind and line decide"
    assert told["predicted_only"] == told["measured_only"] == []
    assert [(each["kind"], each["count"]) for each in told["of_the_device"]] == [("EVENT_SEMAPHORE", 1)]
    assert (told["simulated"], told["notes"], told["name"]) == (False, [], "captured")
    kinds = {(each["engine"], each["kind"]): each for each in told["kinds"]}
    assert kinds["tensor", "MATMUL"]["measured_ns"] == 400 + 220 + 220
    assert kinds["scalar", "ACTIVATE"]["measured_ns"] == 3 * 700
    assert kinds["dma", "DMA data"]["measured_ns"] == 900 + 6 * 700
    assert told["measured_ns"] == 18_000 + 5_100 - 10_050
    vector = kinds["vector", "TENSOR_SCALAR"]
    rows = [row for row in predicted["instructions"].rows() if row["engine"] == "vector"]
    ours = sum(row["visible_ns"] - row["start_ns"] for row in rows)
    assert vector["predicted_ns"] == pytest.approx(ours)
    assert vector["error"] == pytest.approx(ours / 930 - 1.0)


def test_what_one_side_lacks_is_told(predicted: Profile, tmp_path: Path) -> None:
    """The device dropped a product and its weights, and its compiler added a memset for each tile."""
    told = compared(predicted, captured(skip="tile 1", extra=True), tmp_path).to_json()
    line = at("nc_matmul").rpartition("/")[2]
    assert told["predicted_only"] == [
        {"engine": "tensor", "kind": "LDWEIGHTS", "line": line, "count": 1},
        {"engine": "tensor", "kind": "MATMUL", "line": line, "count": 1},
    ]
    assert told["measured_only"] == [{"engine": "vector", "kind": "MEMSET", "line": "other.py:3", "count": 3}]
    assert all_by_line(told, 17)


def test_without_lines_the_order_decides(predicted: Profile, tmp_path: Path) -> None:
    assert compared(predicted, captured(lines=False), tmp_path).to_json()["matched"] == {"kind": 19}


def test_what_was_moved_is_found_by_its_line(predicted: Profile, tmp_path: Path) -> None:
    """The device started the second load before the first one's store, and that of the weights last."""
    tape = captured()
    weights = next(row for row in tape.instructions if row["nki_source_location"] == at("src=weights"))
    weights["start_ts"], weights["end_ts"] = 99_000, 99_050
    told = compared(predicted, tape, tmp_path).to_json()
    assert all_by_line(told)
    assert told["matched"]["moved"] >= 1


def test_a_transfer_that_another_engine_started(predicted: Profile, tmp_path: Path) -> None:
    tape = captured()
    store = next(row for row in tape.instructions if row["nki_source_location"] == at("dst=out["))
    store["engine"] = "Scalar"
    found = compared(predicted, tape, tmp_path).to_json()["matched"]
    assert (found["engine"], sum(found.values())) == (1, 19)


@pytest.mark.parametrize("text", ["['{}']", "[{}, other.py:3]", '["{}", "x.py:9"]'])
def test_lists_of_source_locations(predicted: Profile, tmp_path: Path, text: str) -> None:
    """The schema's document calls the column a list of strings."""
    tape = captured()
    for row in tape.instructions:
        row["nki_source_location"] = text.format(row["nki_source_location"])
    assert all_by_line(compared(predicted, tape, tmp_path).to_json())


def test_the_last_of_several_executions_counts(predicted: Profile, tmp_path: Path) -> None:
    tape, later = captured(), captured()
    tables = tape.tables()
    shift = 1_000_000
    for row in (*later.instructions, *later.transfers):
        moved = {"start_ts": row["start_ts"] + shift, "end_ts": row["end_ts"] + shift, "id": row["id"] + shift}
        (tables["Instruction"] if "opcode" in row else tables["DmaPacketAggregated"]).append({**row, **moved})
    tables["Flow"] += [{**row, "in_id": row["in_id"] + shift, "out_id": row["out_id"] + shift} for row in later.flows]
    tables["ExecutionInfo"] = [
        {"execution_index": 0, "execution_start_ts": 0, "execution_end_ts": shift},
        {"execution_index": 1, "execution_start_ts": shift, "execution_end_ts": 2 * shift},
    ]
    write(tmp_path, tables)
    told = compare(predicted, tmp_path).to_json()
    assert all_by_line(told)
    assert told["notes"] == ["of 2 executions the last one counts, 20 of 40 instructions"]


def test_a_table_in_several_files(predicted: Profile, tmp_path: Path) -> None:
    tape = captured()
    write(tmp_path / "a", {"Instruction": tape.instructions[:9]})
    write(tmp_path / "b", {"Instruction": tape.instructions[9:]})
    rest = tape.tables()
    del rest["Instruction"]
    write(tmp_path / "c", rest)
    fields = tmp_path / "c" / "SchemaFields.parquet"
    fields.unlink()
    for number, part in enumerate("ab"):
        (tmp_path / part / "Instruction.parquet").rename(tmp_path / "c" / f"Instruction_{number}.parquet")
    told = compare(predicted, tmp_path / "c").to_json()
    assert all_by_line(told)
    assert "no table SchemaFields" in told["notes"][0]


def test_another_kernel_is_refused(predicted: Profile, tmp_path: Path) -> None:
    tape = Tape()
    tape.run("GpSimd", "IOTA", 100, 50, "/home/ubuntu/elsewhere.py:1")
    with pytest.raises(ArtifactError) as caught:
        compared(predicted, tape, tmp_path)
    assert caught.value.code == "measured.match"


def test_loops_are_compared_trip_by_trip(tmp_path: Path) -> None:
    """Our own program says how often; the device records each execution."""
    tape = Tape()
    tape.run("Vector", "MEMSET", 100, 200)
    begin = 1_000
    for _ in range(4):
        for _ in range(3):
            tape.move("Sync", begin, begin + 900, begin + 1_500, 262_144)
            tape.run("Vector", "TENSOR_TENSOR", begin + 1_600, 600)
            begin += 3_000
        tape.move("Sync", begin, begin + 900, begin + 1_500, 262_144)
        begin += 3_000
    tape.run("Scalar", "ACTIVATE", begin, 700)
    tape.move("Sync", begin + 800, begin + 1_700, begin + 2_300, 262_144)
    told = compared(profiled(looping, array(4, 128, 512)), tape, tmp_path).to_json()
    assert told["matched"] == {"kind": 1 + 12 * 2 + 4 + 2}
    assert told["predicted_only"] == told["measured_only"] == []


def longest(a: str, b: str) -> int:
    """By the definition."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@pytest.mark.parametrize("cells", [1 << 31, 40], ids=["at once", "halved"])
@pytest.mark.parametrize(
    "a,b",
    [
        ("", "abc"),
        ("abc", "abc"),
        ("abcabba", "cbabac"),
        ("aaaaaaa", "aaa"),
        ("xaybzc", "abc"),
        ("abcdefgh", "hgfedcba"),
        ("the quick brown fox jumps", "a quack brow fix jumped over"),
        ("ab" * 40, "ba" * 33),
    ],
)
def test_the_alignment_is_a_longest_common_subsequence(
    a: str, b: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nki.profiling.measured.alignment.MOST_CELLS", cells)
    pairs = common(a, b)
    assert [a[i] for i, _ in pairs] == [b[j] for _, j in pairs]
    assert all(one < three and two < four for (one, two), (three, four) in itertools.pairwise(pairs))
    assert len(pairs) == longest(a, b)


@pytest.mark.parametrize("lost", [{0}, {57}, {299}, {3, 4, 5, 90, 222}, set(range(0, 300, 30))])
def test_times_say_which_of_equal_instructions_is_missing(lost: set[int]) -> None:
    """The other side has another beginning and is 5 % slower; the pattern of pauses is what both have."""
    dice = random.Random(5)
    starts = [100.0 * at + 60.0 * dice.random() for at in range(300)]
    kept = [at for at in range(300) if at not in lost]
    whole = Side(["x"] * 300, starts, [start + 20.0 for start in starts])
    slower = Side(
        ["x"] * len(kept),
        [5e4 + 1.05 * whole.starts[at] for at in kept],
        [5e4 + 1.05 * whole.ends[at] for at in kept],
    )
    assert [a for a, _ in equals(whole, slower)] == kept
    assert [b for _, b in equals(slower, whole)] == kept
    assert [b for _, b in equals(whole, slower)] == list(range(len(kept)))


def test_a_matmul_of_float32_is_measured_in_two_passes(tmp_path: Path) -> None:
    def wide(a: Any, b: Any) -> Any:
        product, out = psum((128, 512)), hbm((128, 512))
        nisa.nc_matmul(dst=product, stationary=loaded(a), moving=loaded(b))
        copy = sbuf((128, 512))
        nisa.tensor_copy(dst=copy, src=product)
        nisa.dma_copy(dst=out, src=copy)
        return out

    tape = Tape()
    for number in range(2):
        tape.run("Tensor", "LDWEIGHTS", 5_000 + 900 * number, 100)
        tape.run("Tensor", "MATMUL", 5_200 + 900 * number, 880)
    told = compared(profiled(wide, array(128, 128), array(128, 512)), tape, tmp_path).to_json()
    assert {each["kind"]: each["matched"] for each in told["kinds"] if each["engine"] == "tensor"} == {
        "LDWEIGHTS": 2,
        "MATMUL": 2,
    }
