"""What is misspelt or meant otherwise on a command line gets a fix that can be written there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tools.kernels import GOOD, SMALL, write
from tests.tools.running import nki, nki_json

TILED = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def tiled(a, tile_m=64):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], tile_m):
        tile = nl.ndarray((tile_m, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[start : start + tile_m])
        nisa.dma_copy(dst=out[start : start + tile_m], src=tile)
    return out
"""


@pytest.mark.parametrize(
    ("arguments", "code", "fix"),
    [
        (("a=128,512",), "argument.no-array", "write --arg a=128x512:float32"),
        (("a=3",), "argument.no-array", "write --arg a=SHAPE:DTYPE, for example --arg a=128x512:float32"),
        (("a=[[1,2],[3,4]]",), "argument.no-array", "write --arg a=2x2:float32, or --arg a=2x2:float32:FILE.npy for"),
        ((), "call.kernel-arguments", "add --arg a=...: --arg a=128x512:float32 for an array"),
        (("a=128x8:float32", "tims=2"), "call.kernel-arguments", "write --arg times=..."),
    ],
)
def test_arguments_of_the_kernel(tmp_path: Path, arguments: tuple[str, ...], code: str, fix: str) -> None:
    file, words = write(tmp_path, GOOD), [word for text in arguments for word in ("--arg", text)]
    (finding,) = nki_json("check", file, *words, code=1)["findings"]
    assert finding["code"] == code and finding["fix"].startswith(fix)
    error = nki_json("run", file, *words, code=1)["error"]
    assert error["code"] == code and error["fix"].startswith(fix)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("128x512:f32", "write --arg a=128x512:float32"),
        ("128x512:flaot32:zeros", "write --arg a=128x512:float32:zeros"),
        ("4x2:bf16", "write --arg a=4x2:bfloat16"),
        ("4x2:int64", "write --arg a=4x2:int32"),
        ("4x2:float64", "write --arg a=4x2:float32"),
    ],
)
def test_dtypes(tmp_path: Path, text: str, fix: str) -> None:
    error = nki_json("check", write(tmp_path, GOOD), "--arg", f"a={text}", code=2)["error"]
    assert (error["code"], error["fix"]) == ("arg.dtype", fix)
    nki("check", write(tmp_path, GOOD), *fix.split()[1:])


@pytest.mark.parametrize(
    ("config", "fix"),
    [
        ("tm=128", "write --config tile_m=128"),
        ("tilem=32", "write --config tile_m=32"),
        ("prefetch_autos=True", "write --config prefetch_auto=True"),
        ("nlc=2", "write --config lnc=2"),
    ],
)
def test_configurations(tmp_path: Path, config: str, fix: str) -> None:
    words = (write(tmp_path, TILED), "--arg", "a=128x8:float32", "--target", "trn2")
    error = nki_json("tune", *words, "--config", config, code=2)["error"]
    assert (error["code"], error["fix"]) == ("tune.config", fix)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("chekc", "FILE"), "No such command 'chekc'. Did you mean 'nki check'?"),
        (("comiple", "FILE"), "Did you mean 'nki compile'?"),
        (("profil",), "Did you mean 'nki profile'?"),
        (("xyzzyx",), "No such command 'xyzzyx'."),
        (("check", "FILE", "--targt", "trn2"), "--target"),
        (("check", "FILE", "--frontend", "0.8"), "is not one of"),
        (("run", "FILE", "--mode", "egaer"), "Did you mean 'eager'?"),
        (("compile", "FILE", "--emit", "nef"), "Did you mean 'neff'?"),
        (("check", "FILE", *SMALL, "--target", "tnr2"), "fix: write trn2; the targets are"),
        (("compile", "FILE", *SMALL, "--passes", "canonicalise"), "fix: write canonicalize"),
        (("check", "FILE::duble", *SMALL), "fix: use FILE::double"),
        (("check", "FOLDER/kernel.py::double", *SMALL), "fix: write FOLDER/kernels.py::double"),
        (("explain", "return.party-written"), "return.partly-written"),
    ],
)
def test_the_nearest_word_is_told(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    def filled(text: str) -> str:
        return text.replace("FILE", f"{tmp_path}/kernels.py").replace("FOLDER", str(tmp_path))

    write(tmp_path, GOOD)
    told = nki(*map(filled, words), code=2).stderr
    assert filled(says) in told
    if says.endswith("'xyzzyx'."):
        assert "Did you mean" not in told


# --- words of other tools


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("version",), "nki --version"),
        (("help",), "nki --help"),
        (("help", "check"), "nki check --help"),
        (("simulate", "FILE"), "nki run"),
        (("benchmark", "FILE"), "nki profile"),
        (("build", "FILE"), "nki compile"),
        (("lint", "FILE"), "nki check"),
        (("FILE",), "nki run FILE"),
        (("model.pt2",), "nki cc model.pt2"),
        (("check", "FILE", "--cores", "2"), "--lnc"),
        (("check", "FILE", "--platform", "trn2"), "--target"),
        (("check", "FILE", "-target", "trn2"), "--target"),
        (("check", "FILE", "-a", "a=4x8:float32"), "--arg"),
        (("check", "FILE", "--args", "a=4x8:float32"), "--arg"),
        (("run", "FILE", "--save", "x.npy"), "--output"),
        (("run", "FILE", "--out", "x.npy"), "--output"),
        (("profile", "FILE", "--output", "x"), "--out"),
        (("compile", "FILE", "--to", "asm"), "--emit"),
        (("opt", "FILE", "--pass", "schedule"), "--passes"),
        (("compare", "FILE", "--baseline", "FILE::f"), "--reference"),
        (("check", "FILE", "a=4x8:float32", "n=4"), "--arg a=4x8:float32 --arg n=4"),
        (("rules", "trn2"), "--target trn2"),
    ],
)
def test_what_was_meant(tmp_path: Path, words: tuple[str, ...], meant: str) -> None:
    file = write(tmp_path, GOOD)
    written = [word.replace("FILE", file) for word in words]
    meant = meant.replace("FILE", file)
    assert f"Did you mean '{meant}'?" in nki(*written, code=2).stderr
    error = nki_json(*written, code=2)["error"]
    assert (error["code"], error["fix"]) == ("command.usage", f"write {meant}")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ls", "foo"), "The command takes options alone."),
        (("opt", "FILE"), "Missing option '--passes'. A,B,C: What to run"),
        (("check",), "Missing argument 'FILE[::KERNEL]'"),
        (("run", "FILE", "--seed", "x"), "'x' is not a valid integer"),
    ],
)
def test_commands_that_are_incomplete(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    written = [word.replace("FILE", write(tmp_path, GOOD)) for word in words]
    assert says in nki(*written, code=2).stderr
    error = nki_json(*written, code=2)["error"]
    assert error["code"] == "command.usage" and f"`nki {words[0]} --help`" in error["fix"]


# --- files and arguments in another form; what the fix says can be written


@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (("check", "FOLDER/kernels"), "kernel.file", "write FOLDER/kernels.py"),
        (("check", "FOLDER/kernels.py:double"), "kernel.file", "write FOLDER/kernels.py::double"),
        (("check", "FOLDER/kernels.double"), "kernel.file", "write FOLDER/kernels.py::double"),
        (("check", "FOLDER"), "kernel.file", "write FOLDER/kernels.py"),
        (("check", "FILE", "--arg", "a"), "arg.form", "write --arg a=128x512:float32 for an array, --arg a=4 for a"),
        (("check", "FILE", "--arg", "a:4x8:float32"), "arg.form", "write --arg a=4x8:float32"),
        (("check", "FILE", "--arg", "a = 4x8:float32"), "arg.form", "write --arg a=4x8:float32"),
        (("run", "FILE", "--arg", "a=FOLDER/a.npy"), "arg.literal", "write --arg a=4x8:float32:FOLDER/a.npy"),
        (("run", "FILE", "--arg", "a=FOLDER/no.npy"), "arg.literal", "write --arg a=SHAPE:DTYPE:FOLDER/no.npy"),
        (("run", "FILE", "--arg", "a=FOLDER/a.npz"), "arg.literal", "save the array by numpy.save"),
        (
            ("run", "FILE", "--arg", "a=2x2:float32:FOLDER/a.npy"),
            "arg.file-contents",
            "write --arg a=4x8:float32:FOLDER/a.npy",
        ),
        (("run", "FILE", "--arg", "a=4x8:float32:rand"), "arg.fill", "write --arg a=4x8:float32:random"),
        (("run", "FILE", "--arg", "a=4x8:float32:FILE"), "arg.file", "name a file that numpy.save wrote"),
        (("run", "FILE", "--arg", "a=9999999x9999999:float32"), "arg.shape", "use smaller sizes"),
        (("compile", "FILE", *SMALL, "-o", "FOLDER/k.neff"), "compile.emit", "add --emit neff"),
        (("compile", "FILE", *SMALL, "-o", "FOLDER/k.mlir"), "compile.emit", "add --emit scheduled"),
        (("cc", "FILE"), "cc.model", "export the model to a .pt2 file; `nki compile FILE --emit neff"),
        (("check", "FILE", *SMALL, "--target", "trn2.48xlarge"), "target.unknown", "write trn2; the targets are"),
        (("compare", "FILE", *SMALL, "--against", "numpy.add"), "compare.against", "write --reference FILE::FUNCTION"),
        (("tune", "FILE", *SMALL, "--config", "rows=1,2"), "tune.option", "write --config rows=1 --config rows=2"),
        (("tune", "FILE", *SMALL, "--config", '{"rows": 2}'), "tune.option", "write --config rows=2"),
    ],
)
def test_fixes_that_can_be_written(tmp_path: Path, words: tuple[str, ...], code: str, fix: str) -> None:
    file = write(tmp_path, GOOD)
    array = np.ones((4, 8), np.float32)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", a=array)

    def filled(text: str) -> str:
        return text.replace("FILE::FUNCTION", "\0").replace("FILE", file).replace("FOLDER", str(tmp_path))

    error = nki_json(*map(filled, words), code=2)["error"]
    assert error["code"] == code and error["fix"].startswith(filled(fix).replace("\0", "FILE::FUNCTION"))


@pytest.mark.parametrize("command", ["inspect", "disasm"])
def test_a_kernel_that_is_not_compiled(tmp_path: Path, command: str) -> None:
    file = write(tmp_path, GOOD)
    error = nki_json(command, file, code=1)["error"]
    assert error["code"] == "artifact.magic" and error["message"].startswith(f"{file} is no compiled file")
    assert error["fix"] == f"compile it first: nki compile {file} --emit neff -o kernels.neff"


def test_a_code_as_messages_show_it() -> None:
    assert nki("explain", "error[tensor.partitions]:").stdout.startswith("tensor.partitions: ")


# --- two cores

COPIES = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copies(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = a.shape[0] // {share}
    start = {start}
    tile = nl.ndarray((rows, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[start : start + rows])
    nisa.dma_copy(dst=out[start : start + rows], src=tile)
    return out
"""


@pytest.mark.parametrize(
    ("share", "start", "cores", "codes"),
    [
        ("1", "0", 2, ["cores.undivided"]),
        ("1", "0", 1, []),
        ("nl.num_programs(0)", "nl.program_id(0) * rows", 2, []),
        ("nl.num_programs(0)", "0", 2, ["return.partly-written", "cores.undivided"]),
    ],
)
def test_work_that_two_cores_do_not_divide(
    tmp_path: Path, share: str, start: str, cores: int, codes: list[str]
) -> None:
    file = write(tmp_path, COPIES.format(share=share, start=start))
    words = ("--arg", "a=64x8:float32", "--target", "trn2", *(("--lnc", str(cores)) if cores > 1 else ()))
    found = nki_json("check", file, *words)["findings"]
    assert [(each["code"], each["severity"]) for each in found] == [(code, "warning") for code in codes]
