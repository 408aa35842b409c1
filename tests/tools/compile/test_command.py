"""`nki compile`: every stage of a kernel, going on from a dumped one, and what the figures say."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.ir.read import read
from nki.ir.text import from_text
from nki.passes.pipeline import PIPELINE
from nki.store.artifact.container import load
from tests.tools.kernels import GOOD, SMALL, write
from tests.tools.running import nki, nki_json

ALL = [item.name for item in PIPELINE]


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    return write(tmp_path, GOOD)


def test_the_table_names_every_pass_and_the_waits(kernel: str) -> None:
    text = nki("compile", kernel, *SMALL).stdout
    assert text.startswith("double for trn3")
    assert all(name in text for name in ALL)
    assert "2 for 2 dependences between queues" in text
    assert "32 bytes per partition, at least 32 needed" in text
    assert "in program order" in text


def test_figures_in_json(kernel: str) -> None:
    told = nki_json("compile", kernel, *SMALL, "--target", "trn2")
    assert [row["name"] for row in told["passes"]] == ALL
    assert {row["instructions"] for row in told["passes"]} == {3}
    assert (told["target"], told["emit"], told["text"], told["diff"]) == ("trn2", "check", None, None)
    assert (told["waits_before"], told["waits_after"]) == (2, 2)
    sbuf, psum = told["memory"]
    assert (sbuf["name"], sbuf["bound"], sbuf["peak"], psum["peak"]) == ("SBUF", 32, 32, 0)
    # two transfers, which depend on each other through the Vector engine, of at least 1 us each
    assert told["program_order_ns"] >= told["makespan_ns"] > 2000
    assert told["kernel_hash"] == nki_json("run", kernel, *SMALL, "--target", "trn2")["kernel_hash"]


def test_ir_is_what_was_traced(kernel: str) -> None:
    result = nki("compile", kernel, *SMALL, "--emit", "ir")
    (program,) = read(from_text(result.stdout))
    assert program.passed == ()
    assert program.body.sync is None
    assert "not scheduled" in result.stderr


def test_scheduled_is_after_all_passes(kernel: str, tmp_path: Path) -> None:
    out = tmp_path / "double.mlir"
    shown = nki("compile", kernel, *SMALL, "--emit", "scheduled", "-o", str(out)).stdout
    (program,) = read(from_text(out.read_text()))
    assert list(program.passed) == ALL
    assert program.body.sync is not None
    assert f"written to {out}" in shown


def test_assembly_has_the_queues(kernel: str) -> None:
    text = nki("compile", kernel, *SMALL, "--emit", "asm").stdout
    assert "queue vector" in text
    assert "tensor_scalar on vector" in text


def test_a_file_to_run(kernel: str, tmp_path: Path) -> None:
    out = tmp_path / "double.neff"
    nki("compile", kernel, *SMALL, "--emit", "neff", "-o", str(out), "--lnc", "2")
    artifact = load(out)
    assert len(artifact.programs) == 2
    assert artifact.origin.options["address_rotation"] == "auto"
    traced = nki_json("compile", kernel, *SMALL, "--lnc", "2", "--emit", "ir")
    assert artifact.origin.kernel_hash == traced["kernel_hash"]


def test_scheduling_beats_the_order_that_is_written(tmp_path: Path) -> None:
    """Each tile is loaded, scaled many times and stored before the next one; results are awaited unless tiles mix."""
    body = """
    for row in range(4):
        tile = nl.ndarray((128, 8), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[row * 128 : row * 128 + 128, :])
        for _ in range(8):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=times)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=times)
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, :], src=tile)
    return out
"""
    head = GOOD[: GOOD.index("    tile =")]
    told = nki_json("compile", write(tmp_path, head + body), "--arg", "a=512x8:float32")
    assert 0 < told["makespan_ns"] < told["program_order_ns"]


@pytest.mark.parametrize("stage", ["00-trace", "08-unroll", "10-schedule"])
def test_compiling_goes_on_from_a_dumped_stage(kernel: str, tmp_path: Path, stage: str) -> None:
    whole = nki_json("compile", kernel, *SMALL, "--dump-ir", str(tmp_path), "--emit", "scheduled")
    files = sorted(path.name for path in (tmp_path / "double").iterdir())
    assert files == [f"{n:02}-{name}.mlir" for n, name in enumerate(["trace", *ALL])]
    rest = nki_json("compile", str(tmp_path / "double" / f"{stage}.mlir"), "--emit", "scheduled")
    assert [row["name"] for row in rest["passes"]] == ALL[int(stage[:2]) :]
    assert rest["text"] == whole["text"]


def test_a_finished_stage_has_no_time_in_program_order(kernel: str, tmp_path: Path) -> None:
    done = tmp_path / "done.mlir"
    nki("compile", kernel, *SMALL, "--emit", "scheduled", "-o", str(done))
    told = nki_json("compile", str(done))
    assert told["passes"] == []
    assert told["program_order_ns"] is None
    assert told["makespan_ns"] > 2000


def test_differences_show_addresses_queues_and_order(kernel: str) -> None:
    lines = nki("compile", kernel, *SMALL, "--diff").stdout.splitlines()
    assert lines[:2] == ["--- unroll", "+++ allocate_and_schedule"]
    assert any(line.startswith("+") and "; at partition 0, byte 0" in line for line in lines)
    (scaled,) = (line for line in lines if line.startswith("+") and "tensor_scalar" in line)
    assert scaled.endswith("; on vector, after 1 of dma0, signals")


def test_only_the_passes_that_are_named_run(kernel: str) -> None:
    told = nki_json("compile", kernel, *SMALL, "--passes", "allocate_and_schedule,schedule", "--emit", "scheduled")
    assert [row["name"] for row in told["passes"]] == ["allocate_and_schedule", "schedule"]
    unscheduled = nki_json("compile", kernel, *SMALL, "--passes", "canonicalize")
    assert (unscheduled["waits_after"], unscheduled["makespan_ns"]) == (None, None)


def test_printing_after_a_pass(kernel: str) -> None:
    told = nki("compile", kernel, *SMALL, "--print-after", "allocate_and_schedule").stderr
    assert told.count("// double after ") == 1
    assert "// double after allocate_and_schedule" in told
    assert nki("compile", kernel, *SMALL, "--print-after", "all").stderr.count("// double after ") == len(ALL) + 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--emit", "neff"), "compile.output"),
        (("-o", "x.txt"), "compile.emit"),
        (("--emit", "ir", "--diff"), "compile.emit"),
        (("--emit", "asm", "-o", "no/such/place"), "output.directory"),
        (("--emit", "asm", "-o", "."), "output.directory"),
        (("--dump-ir", "/dev/null"), "output.directory"),
        (("--passes", "allocate_and_schedule,magic"), "pass.unknown"),
        (("--print-after", "magic"), "pass.unknown"),
        (("--passes", "allocate_and_schedule", "--print-after", "unroll"), "compile.pass"),
    ],
)
def test_wrong_use(kernel: str, words: tuple[str, ...], code: str) -> None:
    assert nki_json("compile", kernel, *SMALL, *words, code=2)["error"]["code"] == code


def test_arguments_of_a_dumped_stage_are_settled(tmp_path: Path) -> None:
    assert nki_json("compile", "x.mlir", *SMALL, code=2)["error"]["code"] == "compile.stage"
    assert nki_json("compile", str(tmp_path / "x.mlir"), code=1)["error"]["code"] == "ir.file"
    broken = write(tmp_path, "module {", "broken.mlir")
    assert nki_json("compile", broken, code=1)["error"]["code"] == "ir.parse"


def test_a_stage_of_another_target_is_refused(kernel: str, tmp_path: Path) -> None:
    out = tmp_path / "double.mlir"
    nki("compile", kernel, *SMALL, "--target", "trn2", "--emit", "ir", "-o", str(out))
    assert nki_json("compile", str(out), "--target", "trn3", code=1)["error"]["code"] == "ir.target"
    assert nki_json("compile", str(out))["target"] == "trn2"


def test_a_kernel_that_does_not_fit(tmp_path: Path) -> None:
    """All three tiles are needed by one instruction."""
    wide = GOOD.replace("tile = nl.ndarray(a.shape", "tile, one, two = (nl.ndarray((128, 24000)").replace(
        "buffer=nl.sbuf)", "buffer=nl.sbuf) for _ in range(3))"
    )
    body = "nisa.memset(dst=one, value=1.0)\n    nisa.memset(dst=two, value=1.0)\n    "
    body += "nisa.tensor_tensor(dst=tile, data1=one, data2=two, op=nl.add)\n    "
    wide = wide.replace("nisa.dma_copy(dst=tile, src=a)", body).replace("src=tile)", "src=tile[:, 0:8])")
    assert "memory.capacity" in nki("compile", write(tmp_path, wide), *SMALL, code=1).stderr


def test_a_kernel_that_breaks_a_rule(tmp_path: Path) -> None:
    wrong = write(tmp_path, GOOD.replace("src=tile)", "src=tile[:, 0:3])"))
    assert nki_json("compile", wrong, *SMALL, code=1)["error"]["code"] == "dma_copy.element-count"
