"""What is misspelt or meant otherwise on a command line gets a fix that can be written there."""

from __future__ import annotations

from pathlib import Path

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
        (("chekc", "FILE"), "No such command 'chekc'. Did you mean 'check'?"),
        (("comiple", "FILE"), "Did you mean 'compile'?"),
        (("profil",), "Did you mean 'profile'?"),
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
