"""`nki run FILE.neff`: what a compiled file computes, and which arrays it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nki.spec.program import Block
from nki.store.artifact import container
from tests.tools.kernels import GOOD, SEVERAL, SMALL, write
from tests.tools.running import nki, nki_json

TWO = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def both(a, b):
    sums = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    parts = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=y, src=b)
    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.subtract)
    nisa.dma_copy(dst=sums, src=x)
    nisa.dma_copy(dst=parts, src=y)
    return sums, parts
"""
ARGS = ("--arg", "a=128x8:float32", "--arg", "b=128x8:float32")


@pytest.fixture
def both(tmp_path: Path) -> str:
    out = tmp_path / "both.neff"
    nki("compile", write(tmp_path, TWO), *ARGS, "--emit", "neff", "-o", str(out))
    return str(out)


def test_a_file_gives_what_the_kernel_gives(both: str, tmp_path: Path) -> None:
    ran, loaded = nki_json("run", str(tmp_path / "kernels.py"), *ARGS), nki_json("run", both, *ARGS)
    assert loaded["results"] == ran["results"]
    assert loaded["kernel_hash"] == ran["kernel_hash"]
    assert {key: loaded[key] for key in ("kernel", "mode", "cores", "instructions", "memory_peak")} == {
        key: ran[key] for key in ("kernel", "mode", "cores", "instructions", "memory_peak")
    }


def test_arrays_that_nobody_gives_are_made_up(both: str, tmp_path: Path) -> None:
    """The same ones as a kernel gets."""
    ran = nki_json("run", str(tmp_path / "kernels.py"), *ARGS, "--seed", "3")
    assert nki_json("run", both, "--seed", "3")["results"] == ran["results"]


def test_inputs_by_position_and_results_in_a_file(both: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((128, 8), np.float32) for _ in range(2))
    np.save(tmp_path / "x.npy", a)
    np.save(tmp_path / "y.npy", b)
    out = tmp_path / "out.npz"
    nki("run", both, "--inputs", f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}", "-o", str(out))
    with np.load(out) as results:
        np.testing.assert_array_equal(results["result[0]"], a - b)
        np.testing.assert_array_equal(results["result[1]"], b)


def test_it_is_executed_as_a_call_is(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_NATIVE", "always")
    assert nki_json("run", both, *ARGS)["executed"]["native"]
    monkeypatch.setenv("NKI_NATIVE", "0")
    assert not nki_json("run", both, *ARGS)["executed"]["native"]
    monkeypatch.setenv("NKI_REQUIRE_NATIVE", "1")
    refused = nki("run", both, *ARGS, code=2)
    assert "native.unavailable" in refused.output and "NKI_NATIVE=0" in refused.output


def test_two_cores_each_do_their_half(tmp_path: Path) -> None:
    split = GOOD.replace(
        "    tile =", "    half = slice(64 * nl.program_id(0), 64 * nl.program_id(0) + 64)\n    tile ="
    )
    split = split.replace("nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)", "nl.ndarray((64, 8), a.dtype, nl.sbuf)")
    split = split.replace("src=a)", "src=a[half, :])").replace("dst=out,", "dst=out[half, :],")
    kernel, out = write(tmp_path, split), tmp_path / "k.neff"
    nki("compile", kernel, *SMALL, "--lnc", "2", "--emit", "neff", "-o", str(out))
    ran, loaded = nki_json("run", kernel, *SMALL, "--lnc", "2"), nki_json("run", str(out), *SMALL)
    assert loaded["cores"] == 2
    assert loaded["results"] == ran["results"]


def test_cores_that_race_are_reported_and_run(tmp_path: Path) -> None:
    """Both write all of the result: the same bytes, as kernels that are not split do on purpose."""
    kernel, out = write(tmp_path, GOOD), tmp_path / "k.neff"
    nki("compile", kernel, *SMALL, "--lnc", "2", "--emit", "neff", "-o", str(out))
    loaded = nki_json("run", str(out), *SMALL)
    assert [finding["code"] for finding in loaded["findings"]] == ["cores.race"]
    assert loaded["results"] == nki_json("run", kernel, *SMALL, "--lnc", "2")["results"]


def test_an_argument_that_is_written(tmp_path: Path) -> None:
    several, out = write(tmp_path, SEVERAL), tmp_path / "k.neff"
    nki("compile", f"{several}::in_place", *SMALL, "--emit", "neff", "-o", str(out))
    (changed,) = nki_json("run", str(out), *SMALL)["results"]
    assert (changed["name"], changed["min"], changed["max"]) == ("argument a", 7.0, 7.0)


def test_constants_are_settled(tmp_path: Path) -> None:
    out = tmp_path / "k.neff"
    nki("compile", write(tmp_path, GOOD), *SMALL, "--arg", "times=5.0", "--emit", "neff", "-o", str(out))
    (result,) = nki_json("run", str(out), "--arg", "a=128x8:float32:ones")["results"]
    assert result["min"] == result["max"] == 5.0
    assert nki_json("run", str(out), *SMALL, "--arg", "times=1.0", code=2)["error"]["code"] == "run.arguments"


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("--arg", "a=128x8:float32"), "run.arguments", 2),
        (("--arg", "a=128x8:float32", "--arg", "b=128x4:float32"), "run.arguments", 2),
        (("--arg", "a=128x8:float32", "--arg", "b=128x8:int32"), "run.arguments", 2),
        (("--arg", "a=3", "--arg", "b=128x8:float32"), "run.arguments", 2),
        (("--inputs", "x.npy"), "run.inputs", 2),
        ((*ARGS, "--inputs", "x.npy,y.npy"), "run.inputs", 2),
        (("--inputs", "no.npy,no.npy"), "arg.file", 2),
        ((*ARGS, "--lnc", "2"), "run.compiled", 2),
        ((*ARGS, "--mode", "eager"), "run.compiled", 2),
        ((*ARGS, "--target", "trn2"), "run.target", 1),
    ],
)
def test_wrong_use(both: str, words: tuple[str, ...], code: str, exit_code: int) -> None:
    assert nki_json("run", both, *words, code=exit_code)["error"]["code"] == code


def test_inputs_are_for_compiled_files(tmp_path: Path) -> None:
    told = nki_json("run", write(tmp_path, GOOD), "--inputs", "x.npy", code=2)
    assert told["error"]["code"] == "run.inputs"


def test_a_damaged_file_is_refused(both: str, tmp_path: Path) -> None:
    data = bytearray(Path(both).read_bytes())
    data[len(data) // 2] ^= 1
    damaged = tmp_path / "damaged.neff"
    damaged.write_bytes(data)
    assert nki_json("run", str(damaged), *ARGS, code=1)["error"]["code"].startswith("artifact.")


def test_a_schedule_without_its_waits_is_refused(both: str, tmp_path: Path) -> None:
    (program,) = container.load(Path(both)).programs
    sync = [None if each is None else each._replace(waits=()) for each in program.body.sync or []]
    wild = replace(program, body=Block(program.body.buffers, program.body.items, sync))
    out = tmp_path / "wild.neff"
    out.write_bytes(container.pack([wild]))
    told = nki_json("run", str(out), *ARGS, code=1)["error"]
    assert told["code"] == "schedule.race"
    assert "nothing orders them" in told["message"]
