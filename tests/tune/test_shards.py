"""Shards that know nothing of each other give together what one search gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
from nki.core.errors import LaunchError, UsageError
from nki.tune.job import Answer, Answers
from nki.tune.shards import Known, Shard, ShardFile, read_shard, read_shards
from nki.tune.tuned_kernel import TunedKernel
from tests.tune.kernels import TILES, scale
from tests.tune.test_search import A

CONFIGS = [{"tile": 512, "fault": "value"}, *({"tile": tile} for tile in (*TILES, 3000)), {"tile": 1024, "lnc": 2}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Beside the cache."""
    return tmp_path / "shards"


def kernel(configs: list[Any] = CONFIGS, **more: Any) -> TunedKernel:
    return nki.autotune(configs=configs, processes=1, **more)(scale)


def run(folder: Path, count: int, made: TunedKernel | None = None, a: Any = A) -> None:
    for number in range(1, count + 1):
        shard = (made or kernel()).tune_shard({"a": a}, Shard(number, count), lambda *_: None)
        shard.write(folder)


def merged(folder: Path, made: TunedKernel | None = None) -> Any:
    return (made or kernel()).merge_shards({"a": A}, folder, lambda *_: None)


def refusal(folder: Path, made: TunedKernel | None = None) -> str:
    with pytest.raises(LaunchError) as caught:
        merged(folder, made)
    assert caught.value.code == "tune.shards" and caught.value.fix
    return caught.value.message


@pytest.mark.parametrize("count", [1, 3])
def test_shards_give_the_table_of_one_search(count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = kernel().tune(A)
    run(folder, count)
    assert len(list(folder.iterdir())) == count
    if count == 1:

        def refuse(*_: Any) -> Any:
            raise AssertionError("asked though the file has the answer")

        monkeypatch.setattr(Answers, "of", refuse)
        monkeypatch.setattr(nki.tune.search, "outcome", refuse)
    made = kernel()
    found = merged(folder, made)
    assert found.candidates == expected.candidates
    assert {each.state for each in found.candidates} >= {"chosen", "failed", "wrong", "timed"}
    assert made.tune(A).origin == "memory" and kernel().tune(A).origin == "disk"


def test_a_shard_asks_of_its_share_and_the_default() -> None:
    found = kernel().tune_shard({"a": A}, Shard(2, 4), lambda *_: None)
    labels = {label for _, label in found.known.answers}
    assert labels == {"default", "tile=128", "tile=2048"}
    assert set(found.known.verdicts) <= labels


def test_files_that_do_not_belong_together(folder: Path) -> None:
    assert "has no shards" in refusal(folder / "none")
    run(folder, 3)
    (first, second, _) = sorted(folder.iterdir())
    kept = second.read_text()

    def without(change: dict[str, Any]) -> str:
        second.write_text(json.dumps({**json.loads(kept), **change}))
        told = refusal(folder)
        second.write_text(kept)
        return told

    assert f"{second} is of kernel 'other', and this is of 'scale'" in without({"kernel": "other"})
    assert "is of target 'trn1', and this is of 'trn2'" in without({"target": "trn1"})
    assert "is of the call 'a=float32[1]', and this is of 'a=float32[128, 2048]" in without({"key": "a=float32[1]"})
    assert "was made from something else" in without({"digest": "0" * 64})
    assert "has shards 1/3 and 2/4" in without({"shards": 4})
    assert "has shard 1 twice" in without({"shard": 1})
    second.unlink()
    assert "lacks shard 2 of 3" in refusal(folder)
    first.unlink()
    assert "lacks shards 1, 2 of 3" in refusal(folder)


@pytest.mark.parametrize(
    "made",
    [
        kernel(CONFIGS[:-1]),
        kernel(budget=2),
        kernel(tolerance=0.5),
        nki.autotune(configs=CONFIGS, processes=1)(nki.jit(scale))[2],
    ],
)
def test_shards_of_another_search(made: TunedKernel, folder: Path) -> None:
    run(folder, 1)
    assert "was made from something else" in refusal(folder, made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"format": "nki-tuned", "version": 1}',
        '{"format": "nki-tune-shard", "version": 1, "answers": [], "verdicts": {}, "shard": 1}',
        '{"format": "nki-tune-shard", "version": 1, "answers": [{}], "verdicts": {}}',
        '{"format": "nki-tune-shard", "version": 1, "answers": [{"question": "why", "ns": 1.0}], "verdicts": {}}',
        '{"format": "nki-tune-shard", "version": 1, "answers": [{"question": "time", "ns": NaN}], "verdicts": {}}',
        '{"format": "nki-tune-shard", "version": 1, "answers": [], "verdicts": {"default": 3}}',
        '{"format": "nki-tune-shard", "version": 1, "answers": [], "verdicts": {}, "shard": 3, "shards": 2}',
        "[" * 100_000,
    ],
)
def test_files_that_are_no_shards(text: str, folder: Path) -> None:
    folder.mkdir()
    (folder / "scale-1-of-1.json").write_text(text)
    assert "cannot be used: " in refusal(folder)


def test_a_file_appears_complete_or_not_at_all(folder: Path) -> None:
    known = Known({("time", "default"): Answer(1.5), ("bound", "x"): Answer(None, "why", True)}, {"x": "differs"})
    made = ShardFile("scale", "trn2", "key", "digest", Shard(1, 1), known)
    path = made.write(folder / "new" / "folder")
    (folder / "new" / "folder" / f".{path.name}.x.part").write_text("unfinished")
    assert read_shards(path.parent, made) == [made]
    (folder / "file").write_text("")
    with pytest.raises(LaunchError, match="cannot be written"):
        made.write(folder / "file")


@pytest.mark.parametrize("text", ["0/0", "3/2", "0/2", "1", "1/", "/2", "-1/2", "1/2/3", "a/b", "1.5/2", "", "1/0"])
def test_shards_that_are_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_shard(text)
    assert caught.value.code == "tune.shard"


def test_shards_share_all_candidates() -> None:
    assert read_shard("2/3") == Shard(2, 3) and str(Shard(2, 3)) == "2/3"
    for count in (1, 2, 7):
        owners = [[number for number in range(1, count + 1) if Shard(number, count).has(at)] for at in range(10)]
        assert all(len(each) == 1 for each in owners)


def test_a_kernel_of_no_value_has_no_shards(folder: Path) -> None:
    with pytest.raises(LaunchError) as caught:
        run(folder, 1, kernel([{"tile": 256, "fault": np.random.default_rng()}]))
    assert caught.value.code == "tune.shard"
