"""`nki compare`: planted mistakes are found at their lines, and what is right is said to be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bfloat16, float32, int32
from nki.core.errors import NkiError
from nki.ir.print import readable
from nki.testing import tap
from nki.tools.compare.measure import Tolerance, difference, tolerance_for
from tests.tools.kernels import write
from tests.tools.running import nki as run
from tests.tools.running import nki_json

KERNEL = """
import ml_dtypes
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
from nki.testing import tap


@nki.jit
def scores(a, b, scale=0.5):
    out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    scaled = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=left, op0=nl.multiply, operand0=scale)  # SCALE
    tap("scaled", scaled)
    product = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=scaled, moving=right)  # MATMUL
    tap("product", product)
    total = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=total, src=product)  # COPY
    nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=total)
    return out


def reference(a, b, scale):
    scaled = a.astype(np.float64) * scale
    tap("scaled", scaled)
    product = scaled.T @ b.astype(np.float64)
    tap("product", product)
    return product + 1.0
"""

ARGUMENTS = ("--arg", "a=128x64:float32", "--arg", "b=128x32:float32")

RIGHT_SCALE = "op0=nl.multiply, operand0=scale)  # SCALE"
RIGHT_MATMUL = "moving=right)  # MATMUL"
RIGHT_COPY = "nisa.tensor_copy(dst=total, src=product)  # COPY"


def planted(folder: Path, right: str, wrong: str) -> str:
    assert KERNEL.count(right) == 1
    return write(folder, KERNEL.replace(right, wrong))


def line_of(file: str, mark: str) -> int:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, text in enumerate(lines, 1) if mark in text]
    return found


def compare(file: str, *more: str, code: int) -> Any:
    return nki_json("compare", f"{file}::scores", "--reference", f"{file}::reference", *ARGUMENTS, *more, code=code)


# --- against a reference


def test_a_right_kernel_is_equal(tmp_path: Path) -> None:
    told = compare(write(tmp_path, KERNEL), code=0)
    assert (told["equal"], told["first"]) == (True, None)
    assert [(row["kind"], row["name"], row["passed"]) for row in told["rows"]] == [
        ("tap", "scaled", True),
        ("tap", "product", True),
        ("output", "result", True),
    ]


def test_a_wrong_scale_is_found_at_its_line(tmp_path: Path) -> None:
    file = planted(tmp_path, RIGHT_SCALE, "op0=nl.multiply, operand0=scale * 2)  # SCALE")
    told = compare(file, code=1)
    first = told["first"]
    assert (first["row"]["name"], first["last_equal"]) == ("scaled", None)
    assert first["written_by"]["instruction"] == "nisa.tensor_scalar"
    assert first["written_by"]["location"][0]["line"] == line_of(file, "# SCALE")
    figures = first["row"]["difference"]
    assert figures["found"] == pytest.approx(2 * figures["expected"])
    assert figures["rel_l2"] == pytest.approx(1.0)
    assert figures["beyond"] == 128 * 64


def test_a_wrong_slice_is_found_at_its_line(tmp_path: Path) -> None:
    wrong = """nisa.nc_matmul(dst=product[:, 0:31], stationary=scaled, moving=right[:, 0:31])
    nisa.nc_matmul(dst=product[:, 31:32], stationary=scaled, moving=right[:, 30:31])  # PLANTED"""
    file = planted(tmp_path, "nisa.nc_matmul(dst=product, stationary=scaled, moving=right)  # MATMUL", wrong)
    first = compare(file, code=1)["first"]
    assert (first["row"]["name"], first["last_equal"]) == ("product", "scaled")
    assert first["row"]["difference"]["index"][1] == 31
    assert first["row"]["difference"]["beyond"] <= 64
    assert first["written_by"]["location"][0]["line"] == line_of(file, "# PLANTED")


def test_the_way_back_ends_at_the_last_right_tap(tmp_path: Path) -> None:
    file = planted(tmp_path, RIGHT_COPY, RIGHT_COPY.replace("src=product", "src=left[0:64, 0:32]"))
    first = compare(file, code=1)["first"]
    lines = [each["location"][0]["line"] for each in first["origins"]]
    assert first["row"]["kind"] == "output"
    assert line_of(file, "# COPY") in lines
    assert line_of(file, "# MATMUL") not in lines, "its result is not used"
    file = planted(tmp_path, "op0=nl.add, operand0=1.0", "op0=nl.add, operand0=2.0")
    first = compare(file, code=1)["first"]
    lines = [each["location"][0]["line"] for each in first["origins"]]
    assert line_of(file, "operand0=2.0") in lines
    assert line_of(file, "# COPY") in lines
    assert line_of(file, "# MATMUL") not in lines, "its result was found to be right"


def test_a_rounding_is_found_at_its_line(tmp_path: Path) -> None:
    wrong = """op0=nl.multiply, operand0=scale)
    rounded = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=rounded, src=scaled)
    nisa.tensor_copy(dst=scaled, src=rounded)  # PLANTED"""
    file = planted(tmp_path, RIGHT_SCALE, wrong)
    first = compare(file, code=1)["first"]
    assert first["row"]["name"] == "scaled"
    assert first["written_by"]["location"][0]["line"] == line_of(file, "# PLANTED")
    assert first["row"]["difference"]["max_rel"] == pytest.approx(2.0**-8, rel=0.1)
    assert compare(file, "--rtol", "0.05", code=0)["equal"]


def test_the_text_shows_the_line_with_a_caret(tmp_path: Path) -> None:
    file = planted(tmp_path, RIGHT_SCALE, "op0=nl.multiply, operand0=scale * 2)  # SCALE")
    shown = run(
        "compare", f"{file}::scores", "--reference", f"{file}::reference", *ARGUMENTS, "--arg", "scale=3.0", code=1
    ).stdout
    assert "first difference: tap scaled" in shown
    assert f"{line_of(file, '# SCALE')} |     nisa.tensor_scalar(" in shown
    assert "^^^" in shown
    assert "operand0=6.0" in shown, "the operands of the instruction"


def test_repeated_taps_are_matched_by_their_number(tmp_path: Path) -> None:
    text = """
import nki, nki.isa as nisa, nki.language as nl
from nki.testing import tap

@nki.jit
def kernel(a, count=3):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    for i in nl.dynamic_range(count):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        tap("step", tile)
    tap("extra", tile)
    nisa.dma_copy(dst=out, src=tile)
    return out

def right(a, count):
    for _ in range(count):
        a = a * 2
        tap("step", a)
    return a

def wrong(a, count):
    for i in range(count):
        a = a * 2
        tap("step", a + (i == 1))
    return a

def fewer(a):
    tap("step", a * 2)
    return a * 8

def more(a):
    tap("unknown", a)
    for i in range(1, 5):
        tap("step", a * 2**i)
    return a * 8
"""
    file = write(tmp_path, text)
    words = ("compare", f"{file}::kernel", "--arg", "a=128x8:float32", "--reference")
    told = nki_json(*words, f"{file}::right")
    assert [(row["name"], row["passed"], row["counts"]) for row in told["rows"]] == [
        ("step #1", True, True),
        ("step #2", True, True),
        ("step #3", True, True),
        ("extra", False, False),
        ("result", True, True),
    ]
    told = nki_json(*words, f"{file}::wrong", code=1)
    assert told["first"]["row"]["name"] == "step #2"
    told = nki_json(*words, f"{file}::fewer", code=1)
    assert [row["name"] for row in told["rows"] if row["counts"] and not row["passed"]] == ["step #2", "step #3"]
    told = nki_json(*words, f"{file}::more", code=1)
    left = {row["name"]: row["counts"] for row in told["rows"] if not row["passed"]}
    assert left == {"extra": False, "unknown": False, "step #4": True}
    shown = run(*words, f"{file}::right").stdout
    assert "1 tap not compared" in shown


def test_arguments_that_are_written_to_are_compared(tmp_path: Path) -> None:
    text = """
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def kernel(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=7.0)
    nisa.dma_copy(dst=a, src=tile)

def right(a):
    a[...] = 7

def wrong(a):
    a[3, 4] = 7
"""
    file = write(tmp_path, text)
    words = ("compare", f"{file}::kernel", "--arg", "a=128x8:float32", "--reference")
    (row,) = nki_json(*words, f"{file}::right")["rows"]
    assert (row["name"], row["verdict"]) == ("argument a", "equal")
    (row,) = nki_json(*words, f"{file}::wrong", code=1)["rows"]
    assert row["difference"]["beyond"] == 128 * 8 - 1


def test_taps_of_two_cores(tmp_path: Path) -> None:
    text = """
import nki, nki.isa as nisa, nki.language as nl
from nki.testing import tap

@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    tile = nl.ndarray((128, 8), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[core * 128 : core * 128 + 128, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0 + core)  # PLANTED
    tap(f"core{core}", tile)
    nisa.dma_copy(dst=out[core * 128 : core * 128 + 128, :], src=tile)
    return out

def reference(a):
    tap("core0", a[:128] + 1)
    tap("core1", a[128:] + 1)
    return a + 1
"""
    file = write(tmp_path, text)
    words = ("compare", f"{file}::kernel", "--arg", "a=256x8:float32", "--lnc", "2")
    told = nki_json(*words, "--reference", f"{file}::reference", code=1)
    assert [(row["name"], row["core"], row["passed"]) for row in told["rows"][:2]] == [
        ("core0", 0, True),
        ("core1", 1, False),
    ]
    assert told["first"]["written_by"]["location"][0]["line"] == line_of(file, "# PLANTED")
    assert nki_json(*words, "--against", "compiled")["instructions"] == 6


# --- against another run


def test_eager_and_compiled_runs_are_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, KERNEL)
    for mode in ("eager", "compiled"):
        told = nki_json("compare", f"{file}::scores", "--against", mode, *ARGUMENTS)
        assert (told["equal"], told["parted"], told["instructions"]) == (True, None, 7)
        assert told["runs"][1].startswith(mode) and not told["runs"][0].startswith(mode)


BFLOAT = """
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    low = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    nisa.tensor_scalar(dst=low, data=tile, op0=nl.add, operand0=0.1)  # ROUNDS
    nisa.tensor_copy(dst=tile, src=low)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_the_instruction_that_rounds_is_found(tmp_path: Path) -> None:
    file = write(tmp_path, BFLOAT)
    words = ("compare", file, "--arg", "a=128x8:float32", "--against", "NKI_PRECISE_FP=0")
    told = nki_json(*words, code=1)
    first = told["first"]
    assert (first["number"], first["instruction"], first["operand"]) == (2, "nisa.tensor_scalar", "dst")
    assert first["location"][0]["line"] == line_of(file, "# ROUNDS")
    (source,) = first["inputs"]
    assert source["max_abs"] == 0
    assert first["difference"]["found"] == pytest.approx(source["first"] + 0.1)
    assert first["difference"]["expected"] != first["difference"]["found"]
    shown = run(*words, code=1).stdout
    assert f"{line_of(file, '# ROUNDS')} |     nisa.tensor_scalar(" in shown
    assert "equal in both runs" in shown
    assert nki_json(*words, "--rtol", "0.01", "--atol", "0.01")["equal"]


def test_another_order_of_sums_is_seen_at_the_matmul(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the library for products sums in another order is its own affair, so that both verdicts may be right."""
    file = write(tmp_path, KERNEL)
    hashes = set()
    for order in ("blas", "ordered"):
        monkeypatch.setenv("NKI_MATMUL", order)
        hashes.add(nki_json("run", f"{file}::scores", *ARGUMENTS, "--mode", "eager")["results"][0]["sha256"])
    monkeypatch.delenv("NKI_MATMUL")
    words = ("compare", f"{file}::scores", "--against", "NKI_MATMUL=blas", "--target", "trn3", *ARGUMENTS)
    differ = len(hashes) == 2
    told = nki_json(*words, code=int(differ))
    assert told["runs"] == ["eager on trn3", "eager on trn3, NKI_MATMUL=blas"]
    assert not differ or told["first"]["location"][0]["line"] == line_of(file, "# MATMUL")
    assert nki_json(*words, "--rtol", "1e-4", "--atol", "1e-4")["equal"]


ON_TARGET = """
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def kernel(a, issue_more=False):
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    new = nisa.get_nc_version() >= nisa.nc_version.gen4
    if new and issue_more:
        nisa.tensor_copy(dst=tile, src=tile)  # ONLY THERE
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0 if new and not issue_more else 2.0)  # HERE
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_another_target(tmp_path: Path) -> None:
    file = write(tmp_path, ON_TARGET)
    words = ("compare", file, "--arg", "a=128x8:float32:ones", "--target", "trn2", "--against", "trn3")
    first = nki_json(*words, code=1)["first"]
    assert first["location"][0]["line"] == line_of(file, "# HERE")
    assert (first["difference"]["found"], first["difference"]["expected"]) == (3.0, 2.0)
    assert first["difference"]["beyond"] == 128 * 8


def test_runs_that_execute_different_instructions(tmp_path: Path) -> None:
    """The outputs decide; it is said that the rest was not compared."""
    file = write(tmp_path, ON_TARGET)
    words = ("compare", file, "--arg", "a=128x8:float32", "--arg", "issue_more=True", "--against", "trn3")
    told = nki_json(*words, "--target", "trn2")
    assert (told["equal"], told["instructions"], told["parted"]["number"]) == (True, 1, 1)
    assert told["parted"]["second"]["location"][0]["line"] == line_of(file, "# ONLY THERE")
    assert "execute different instructions after 1" in run(*words, "--target", "trn2").stdout


FAILS_ON_ONE = """
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def kernel(a):
    tile = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    for i in range(200):
        nisa.memset(dst=tile, value=1.0 * i)
    if nisa.get_nc_version() == nisa.nc_version.gen3:
        raise ValueError("not here")
    for i in range(200):
        nisa.memset(dst=tile, value=1.0 * i)
    nisa.dma_copy(dst=a, src=tile)
"""


@pytest.mark.parametrize(("first", "second"), [("trn2", "trn3"), ("trn3", "trn2")])
def test_an_error_of_one_run_ends_both(tmp_path: Path, first: str, second: str) -> None:
    """Even while one run is many instructions ahead of the other."""
    words = ("--arg", "a=128x8:float32", "--target", first, "--against", second)
    error = nki_json("compare", write(tmp_path, FAILS_ON_ONE), *words, code=1)["error"]
    assert error["code"] == "kernel.exception"
    assert "not here" in error["message"]


# --- used wrongly


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "compare.mode"),
        (("--reference", "x.py::f", "--against", "eager"), "compare.mode"),
        (("--reference", "nowhere.py::f"), "compare.reference"),
        (("--reference", "FILE"), "compare.reference"),
        (("--reference", "FILE::missing"), "compare.reference"),
        (("--reference", "FILE::scores"), "compare.reference"),
        (("--reference", "FILE::ml_dtypes"), "compare.reference"),
        (("--reference", "FILE::one_argument"), "compare.arguments"),
        (("--reference", "FILE::two_results"), "compare.outputs"),
        (("--reference", "FILE::text"), "compare.outputs"),
        (("--against", "trn9"), "target.unknown"),
        (("--against", "NKI_MATMUL=quick"), "option.value"),
        (("--against", "NKI_MATMUL"), "target.unknown"),
        (("--against", "NKI_SIMULATOR=1"), "compare.against"),
        (("--against", "NKI_NOTHING=1"), "compare.against"),
        (("--against", "eager", "--against", "compiled"), "compare.against"),
        (("--against", "NKI_MATMUL=ordered", "--against", "NKI_MATMUL=blas"), "compare.against"),
        (("--against", "NKI_MATMUL=ordered"), "compare.against"),
    ],
)
def test_wrong_commands(tmp_path: Path, words: tuple[str, ...], code: str) -> None:
    more = """

def one_argument(a):
    return a


def two_results(a, b):
    return a, b


def text(a, b):
    return "result"
"""
    file = write(tmp_path, KERNEL + more)
    words = tuple(word.replace("FILE", file) for word in words)
    assert nki_json("compare", f"{file}::scores", *words, *ARGUMENTS, code=2)["error"]["code"] == code


def test_another_shape_differs(tmp_path: Path) -> None:
    file = write(tmp_path, KERNEL + "\ndef transposed(a, b):\n    return (a.T @ b).T\n")
    told = nki_json("compare", f"{file}::scores", "--reference", f"{file}::transposed", *ARGUMENTS, code=1)
    assert told["rows"][-1]["verdict"] == "DIFFERS: 64 x 32 against 32 x 64"


def test_a_reference_in_another_file_and_its_exceptions(tmp_path: Path) -> None:
    file = write(tmp_path, KERNEL)
    other = write(
        tmp_path, "def good(a, b):\n    return a.T @ b / 2 + 1\n\ndef bad(a, b):\n    return 1 / 0\n", "other.py"
    )
    assert nki_json("compare", f"{file}::scores", "--reference", f"{other}::good", *ARGUMENTS, "--rtol", "1e-3")[
        "equal"
    ]
    error = nki_json("compare", f"{file}::scores", "--reference", f"{other}::bad", *ARGUMENTS, code=1)["error"]
    assert (error["code"], error["location"][0]["line"]) == ("kernel.exception", 5)


# --- taps


def tapping(a: Any, names: Any = ("x",), tapped: bool = True) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    if tapped:
        for name in names:
            tap(name, tile)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_a_tap_is_no_part_of_the_program() -> None:
    a = np.ones((128, 8), np.float32)
    shown = []
    for tapped in (True, False):
        kernel = nki.jit(tapping)
        np.testing.assert_array_equal(kernel(a, tapped=tapped), a)
        np.testing.assert_array_equal(nki.simulate(kernel)(a, tapped=tapped), a)
        kernel(a, tapped=tapped)
        assert kernel.report is not None
        shown.append((readable(kernel.report.programs), kernel.report.kernel_hash))
    assert shown[0] == shown[1]


def test_taps_that_are_refused() -> None:
    a = np.ones((128, 8), np.float32)

    def no_tensor(a: Any) -> Any:
        tap("x", 3)
        return a

    def dynamic(a: Any) -> Any:
        register = nisa.register_alloc(2)
        tap("x", a.select(0, register))
        return a

    kept: list[Any] = []

    def keeps(a: Any) -> Any:
        kept.append(a)
        return a

    def foreign(a: Any) -> Any:
        tap("x", kept[0])
        return a

    nki.simulate(keeps)(a)
    for kernel, arguments, code in (
        (no_tensor, (a,), "tap.value"),
        (dynamic, (a,), "tap.dynamic"),
        (foreign, (a,), "tensor.escaped"),
        (tapping, (a, ("",)), "tap.name"),
        (tapping, (a, (1,)), "tap.name"),
    ):
        with pytest.raises(NkiError) as caught:
            nki.simulate(kernel)(*arguments)
        assert caught.value.code == code
        assert caught.value.location.frame is not None
    with pytest.raises(NkiError, match=r"tap\.value"):
        tap("x", "text")
    tap("x", a)


# --- measures


def test_figures_are_those_of_a_plain_loop() -> None:
    generator = np.random.default_rng(1)
    expected = generator.standard_normal((7, 5))
    found = expected + generator.standard_normal((7, 5)) * 0.01
    measured = difference(found, expected, Tolerance(0.01, 0.001))
    worst, beyond = (0.0, (0, 0)), 0
    for i in range(7):
        for j in range(5):
            over = abs(found[i, j] - expected[i, j]) - 0.001 - 0.01 * abs(expected[i, j])
            beyond += over > 0
            worst = max(worst, (over, (i, j)))
    assert (measured.index, measured.beyond) == (worst[1], beyond)
    assert measured.max_abs == max(abs(x - y) for x, y in zip(found.flat, expected.flat, strict=True))
    error = sum((x - y) ** 2 for x, y in zip(found.flat, expected.flat, strict=True))
    assert measured.rel_l2 == pytest.approx((error / sum(x * x for x in expected.flat)) ** 0.5)


@pytest.mark.parametrize(
    ("found", "expected", "passed"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (np.nan, 1.0, False),
        (1.0, np.inf, False),
        (0.0, 0.0, True),
    ],
)
def test_what_is_not_finite(found: float, expected: float, passed: bool) -> None:
    measured = difference(np.array([found]), np.array([expected]), Tolerance(1e6, 1e6))
    assert measured.passed is passed


def test_default_tolerances() -> None:
    values = np.array([3.0, 4.0])
    assert tolerance_for(values, bfloat16, None, None).rtol == 2.0**-7
    assert tolerance_for(values, float32, None, None) == Tolerance(1e-5, 1e-5 * 12.5**0.5)
    assert tolerance_for(values, int32, None, None) == Tolerance(0.0, 0.0)
    assert tolerance_for(values, int32, 0.5, 0.25) == Tolerance(0.5, 0.25)
