"""`nki tune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.kernels import GOOD
from tests.tools.running import nki, nki_json

FILE = str(Path(__file__).with_name("kernels.py"))
ARRAY = ("--arg", "a=128x2048:float32")


def test_the_configurations_of_the_kernel() -> None:
    told = nki_json("tune", f"{FILE}::tuned", *ARRAY, "--target", "trn2")
    assert (told["kernel"], told["target"], told["is_simulation"], told["validated"]) == ("scale", "trn2", True, True)
    assert told["origin"] == "searched"
    best = min(told["candidates"], key=lambda each: float("inf") if each["ns"] is None else each["ns"])
    assert (told["chosen"], best["state"]) == (best["label"], "chosen")
    shown = nki("tune", f"{FILE}::tuned", *ARRAY, "--target", "trn2").stdout
    assert f": {told['chosen']}: {best['ns'] / 1000:.2f} µs" in shown
    assert " times as fast as the default (disk, simulated)" in shown


def test_it_searches_where_a_file_pins(tmp_path: Path) -> None:
    pinned = tmp_path / "pinned.json"
    kernels = tmp_path / "pinned_kernels.py"
    kernels.write_text(
        "import nki\nfrom tests.tune.kernels import scale as plain\n\n\n"
        "def scale(a, tile=256):\n    return plain(a, tile)\n\n\n"
        f"best = nki.autotune(configs=[{{'tile': 128}}, {{'tile': 512}}], pinned={str(pinned)!r})(scale)\n"
    )
    entry = {"kernel": "scale", "target": "trn2", "key": "a=float32[128, 2048]", "config": "tile=128"}
    pinned.write_text(json.dumps({"format": "nki-tuned", "version": 1, "entries": [entry]}))
    told = nki_json("tune", f"{kernels}::best", *ARRAY, "--target", "trn2", "--budget", "2", "--pin", str(pinned))
    assert (told["origin"], told["chosen"]) == ("searched", "tile=512")
    assert json.loads(pinned.read_text())["entries"] == [{**entry, "config": "tile=512"}]


def test_configurations_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "pinned.json"
    given = ("--config", "tile=512", "--config", "tile=2048,lnc=7", "--config", "tile=1024,dead_code_elim=True")
    told = nki_json("tune", f"{FILE}::scale", *ARRAY, *given, "--target", "trn2", "--pin", str(file))
    states = {each["label"]: each["state"] for each in told["candidates"]}
    assert states["tile=2048, lnc=7"] == "failed"
    assert "tile=1024, compile_config=CompileConfig(dead_code_elim=True)" in states
    (entry,) = json.loads(file.read_text())["entries"]
    assert entry == {"kernel": "scale", "target": "trn2", "key": told["key"], "config": told["chosen"]}


def test_a_plain_kernel_has_nothing_to_choose(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(GOOD)
    error = nki_json("tune", f"{path}::double", "--arg", "a=128x64:float32", code=2)["error"]
    assert error["code"] == "tune.kernel"


@pytest.mark.parametrize("text", ["tile", "tile=", "1", "tile=open('x')", "**{}", "tile=1) + (2"])
def test_a_configuration_that_cannot_be_read(text: str) -> None:
    error = nki_json("tune", f"{FILE}::scale", *ARRAY, "--config", text, code=2)["error"]
    assert error["code"] == "tune.option"


def test_a_configuration_that_the_kernel_does_not_have() -> None:
    error = nki_json("tune", f"{FILE}::scale", *ARRAY, "--config", "tiel=3", code=2)["error"]
    assert (error["code"], error["fix"]) == ("tune.config", "write --config tile=3")


def test_shards_of_the_command_line(tmp_path: Path) -> None:
    words = (f"{FILE}::scale", *ARRAY, "--config", "tile=512", "--config", "tile=2048", "--target", "trn2")
    folder = str(tmp_path / "shards")
    for number in (1, 2):
        told = nki_json("tune", *words, "--shard", f"{number}/2", "--out", folder)
        assert (told["shard"], Path(told["file"]).is_file()) == (f"{number}/2", True)
    told = nki_json("tune", *words, "--merge", folder, "--pin", str(tmp_path / "pinned.json"))
    assert (told["origin"], told["chosen"]) == ("searched", "tile=512")
    assert json.loads((tmp_path / "pinned.json").read_text())["entries"][0]["config"] == "tile=512"
    Path(folder, "scale-2-of-2.json").unlink()
    error = nki_json("tune", *words, "--merge", folder, code=1)["error"]
    assert (error["code"], "lacks shard 2 of 2" in error["message"]) == ("tune.shards", True)


@pytest.mark.parametrize(
    "words,code",
    [
        (("--shard", "0/0", "--out", "x"), "tune.shard"),
        (("--shard", "3/2", "--out", "x"), "tune.shard"),
        (("--shard", "1/2"), "tune.option"),
        (("--out", "x"), "tune.option"),
        (("--shard", "1/2", "--out", "x", "--merge", "x"), "tune.option"),
        (("--shard", "1/2", "--out", "x", "--pin", "x"), "tune.option"),
        (("--merge", "x", "--executor", "threads"), "tune.option"),
        (("--executor", "threads", "--processes", "2"), "tune.option"),
        (("--executor", "threads", "--timeout", "2"), "tune.option"),
        (("--executor", "pool"), "tune.executor"),
    ],
)
def test_options_that_cannot_be(words: tuple[str, ...], code: str) -> None:
    error = nki_json("tune", f"{FILE}::tuned", *ARRAY, *words, code=2)["error"]
    assert error["code"] == code and error["fix"]


def test_an_executor_by_name() -> None:
    told = nki_json("tune", f"{FILE}::tuned", *ARRAY, "--target", "trn2", "--executor", "tests.tune.executors:made")
    assert (told["origin"], told["chosen"]) == ("searched", "tile=512")
