"""A part of the replay, and what its digests and its command tell apart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import replay
from scripts.replaying import record
from scripts.replaying.all_cases import cases, run
from scripts.replaying.case import ASPECTS, Numbers
from scripts.replaying.digest import of_arrays, of_programs
from scripts.replaying.places import ROOT, bare, line

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.source import Frame, Location
from nki.spec.program import Program

PART = (
    "benchmark loop-layer 128x128 bf16 trn2",
    "benchmark softmax 2560x1024 f32 trn1",
    "example flash_attention trn2, two cores",
    "example tensor_add trn3",
    "model text attention",
    "program chain tight",
    "program gather",
    "program loop softmax ahead",
    "program two cores loop passed",
    "refused dma copy_into_a_smaller_tile",
    "refused loops",
)


def chosen() -> list[str]:
    return [name for name in cases() if name.startswith(PART)]


@pytest.fixture(scope="module")
def recorded() -> record.Record:
    return record.load()


@pytest.mark.parametrize("name", chosen())
def test_what_was_recorded(name: str, recorded: record.Record) -> None:
    found, failure = run(name)
    assert (found, failure) == (recorded[name], ""), "python scripts/replay.py check tells more"


def test_the_record_is_complete(recorded: record.Record) -> None:
    assert set(recorded) == set(cases())
    assert record.text_of(recorded) == record.FILE.read_text(encoding="utf-8")
    kinds = {frozenset(found) for found in recorded.values()}
    assert kinds == {frozenset(ASPECTS[:4]), frozenset(ASPECTS[4:])}


def test_another_process_in_another_folder_gives_the_same(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "replay.py", "check", "--json", "--only", "tensor_add trn3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["cases"], told["differ"], told["fail"]) == (0, 1, [], {}), done.stderr
    assert list(tmp_path.iterdir()) == []


# What a digest sees: each change is made to a program that was compiled.


@pytest.fixture(scope="module")
def program() -> Program:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out, src=x)
        return out

    made = nki.jit(kernel)
    made(np.ones((4, 8), np.float32))
    assert made.report is not None
    return made.report.programs[0]


def at(program: Program, change: Callable[[Any], Any]) -> Program:
    """The program with its second instruction changed."""
    items = list(program.body.items)
    items[1] = change(items[1])
    return replace(program, body=replace(program.body, items=items))


def moved(program: Program, *frames: Frame) -> Program:
    return at(program, lambda issued: issued._replace(location=Location((*issued.location.frames, *frames))))


OWN = str(Path(nki.__file__).parent / "anywhere" / "emit.py")


def differing(one: Program, two: Program) -> set[str]:
    a, b = of_programs([one]), of_programs([two])
    return {aspect for aspect in a if a[aspect] != b[aspect]}


def test_lines_of_the_package_and_of_libraries_do_not_count(program: Program) -> None:
    frames = Frame(OWN, "emit", 7), Frame("/usr/lib/python3/site-packages/jax/lax.py", "add", 9)
    assert differing(program, moved(program, *frames)) == set()
    assert line(Location(frames)) == ""


def test_two_places_that_differ_in_the_package_alone_are_one(program: Program) -> None:
    """Streams number their locations."""
    first = replace(program, location=Location((*program.location.frames, Frame(OWN, "emit", 7))))
    assert differing(program, first) == set()


def test_names_of_passes_do_not_count(program: Program) -> None:
    assert program.passed
    assert differing(program, replace(program, passed=tuple(f"{name}-anew" for name in program.passed))) == set()


def test_the_users_lines_count(program: Program) -> None:
    user = Frame(str(ROOT / "tests" / "anywhere.py"), "kernel", 7)
    assert differing(program, moved(program, user)) == {"ir", "streams"}
    assert bare(Location((user,))) == Location((replace(user, file="tests/anywhere.py"),))


def test_an_operand_counts(program: Program) -> None:
    changed = at(program, lambda issued: issued._replace(arguments=issued.arguments._replace(operand0=2.5)))
    assert differing(program, changed) == {"ir", "streams"}


def test_a_wait_counts(program: Program) -> None:
    sync = list(program.body.sync or ())
    assert sync[1] is not None and sync[1].waits
    sync[1] = sync[1]._replace(waits=())
    assert differing(program, replace(program, body=replace(program.body, sync=sync))) == {"ir", "streams", "makespan"}


def test_bytes_shapes_and_dtypes_of_results_count() -> None:
    a = np.zeros((2, 3), np.float32)
    b = a.copy()
    b[1, 2] = -0.0
    assert len({of_arrays([x]) for x in (a, b, a.reshape(3, 2), a.astype(np.int32), np.zeros(7, np.float32))}) == 5
    assert of_arrays([a, a]) != of_arrays([np.concatenate((a, a))])


def test_numbers_depend_on_the_name_alone() -> None:
    first = Numbers("a").floats((3,))
    assert first.tobytes() == Numbers("a").floats((3,)).tobytes() != Numbers("b").floats((3,)).tobytes()
    assert (first * 2**14 == np.round(first * 2**14)).all() and abs(first).max() <= 2


# The command.


def replayed(monkeypatch: pytest.MonkeyPatch, found: record.Record, failures: dict[str, str], *words: str) -> int:
    monkeypatch.setattr(replay, "replay", lambda names: ({n: found[n] for n in names if n in found}, failures))
    monkeypatch.setattr(sys, "argv", ["replay.py", *words])
    return replay.main()


def test_check_names_case_and_aspect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recorded: record.Record
) -> None:
    name = "program chain tight"
    changed = {**recorded, name: {**recorded[name], "results": "0" * 16, "makespan": "1.0"}}
    assert replayed(monkeypatch, recorded, {}, "check") == 0
    assert "0 differ" in capsys.readouterr().out
    assert replayed(monkeypatch, changed, {}, "check") == 1
    (row,) = [text for text in capsys.readouterr().out.splitlines() if text.strip().startswith(name)]
    assert row.split()[3:] == ["differs", f"{float(recorded[name]['makespan']):.1f}", "->", "1.0"]


def test_check_tells_of_cases_that_fail_are_new_or_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recorded: record.Record
) -> None:
    fewer = {name: found for name, found in recorded.items() if name != "program chain tight"}
    assert replayed(monkeypatch, fewer, {"program chain": "ValueError: no"}, "check") == 1
    told = capsys.readouterr().out
    assert "program chain fails: ValueError: no" in told
    assert told.splitlines()[1].split() == ["program", "chain", "tight", *["is", "gone"] * 4]


def test_no_case_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="no case has nowhere"):
        replayed(monkeypatch, {}, {}, "check", "--only", "nowhere")


def test_a_failure_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], recorded: record.Record
) -> None:
    monkeypatch.setattr(replay, "FILE", tmp_path / "replay.json")
    assert replayed(monkeypatch, recorded, {"program chain": "ValueError: no"}, "record") == 1
    assert not (tmp_path / "replay.json").exists()
    assert "ValueError: no" in capsys.readouterr().out
