"""The command on the files of its own page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.running import nki, nki_json

PAGE = (Path(__file__).parents[3] / "docs" / "grade.md").read_text()


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of the page, in a folder with the files of the page."""
    kernel, reference = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "kernels.py").write_text(kernel)
    (tmp_path / "references.py").write_text(reference)
    monkeypatch.chdir(tmp_path)
    found = re.search(r"^nki (grade .*)$", PAGE, re.M)
    assert found is not None
    return found[1].replace("200x1000", "130x40").split()


def test_the_command_of_the_page(words: list[str]) -> None:
    told = nki_json(*words, "--baseline", "kernels.py::row_softmax", code=2)
    assert told["error"]["code"] == "grade.same-file"
    Path("baseline.py").write_text(Path("kernels.py").read_text())
    told = nki_json(*words, "--baseline", "baseline.py::row_softmax", "--seed", "5", "--also", "x=64x24:bfloat16")
    assert told["passed"] is True
    assert told["score"] == 50.0
    assert told["time"]["speedup"] == 1.0
    assert told["seed"] == 5
    assert [each["arguments"] for each in told["sets"]] == ["x=130x40:float32", "x=64x24:bfloat16"]
    assert told["isolation"].keys() == {"limits", "network_namespace", "landlock", "system_calls"}
    assert {each["set"] for each in told["values"]} == {0, 1}


def test_people_see_a_table_and_a_score(words: list[str]) -> None:
    text = nki(*words, "--only-given").stdout
    assert "passed, score" in text
    assert "roofline" in text
    assert "nki explain grade.score" in text


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--range", "y=0..1"], "grade.range-form"),
        (["--also", "x='"], "grade.also"),
        (["--reference", "references.py::nobody"], "compare.reference"),
    ],
)
def test_wrong_words(words: list[str], more: list[str], code: str) -> None:
    assert nki_json(*words, *more, code=2)["error"]["code"] == code


def test_a_reference_that_fails(words: list[str]) -> None:
    Path("references.py").write_text("def row_softmax(x):\n    return x.reshape(3)\n")
    told = nki_json(*words, code=2)["error"]
    assert told["code"] == "grade.reference"
    assert told["location"]
