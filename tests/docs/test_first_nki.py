"""Each row of the table of idioms is two kernels, one of the first NKI and one of today, with equal results."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nki
import nki.beta1
import nki.beta1.isa
import nki.beta1.language
import nki.isa
import nki.language
from tests.docs.test_documents import ROOT

PAGE = (ROOT / "docs" / "first-nki.md").read_text(encoding="utf-8")
OLD, NEW = re.findall(r"```python\n(def kernel.*?)```", PAGE, re.S)
ROWS = [
    [cell.replace("<br>", "\n").replace("`", "").strip() for cell in row]
    for row in re.findall(r"^\| (`.+`) \| (`.+`) \|$", PAGE.partition("## Old idiom, new idiom")[2], re.M)
]
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.1, 1, (256, 512)).astype(np.float32)
R = RANDOM.integers(0, 256, (128, 1)).astype(np.int32)


def run(around: str, cell: str, package: ModuleType, folder: Path) -> np.ndarray:
    """The result of a cell's lines in a kernel."""
    lines = "\n".join("    " + line.strip() for line in cell.splitlines())
    text = around.replace("    ...  # the cell\n", f"{lines}\n")
    assert lines in text
    file = folder / f"{package.__name__}.py"
    file.write_text(text, encoding="utf-8")
    space: dict[str, Any] = {"nl": package.language, "nisa": package.isa, "np": np}
    exec(compile(text, str(file), "exec"), space)
    made: np.ndarray = package.jit(space["kernel"])(X, R)
    return made


@pytest.mark.parametrize(("old", "new"), ROWS, ids=[old for old, _ in ROWS])
def test_both_idioms_give_the_same_bits(old: str, new: str, tmp_path: Path) -> None:
    assert old != new
    one, two = run(OLD, old, nki.beta1, tmp_path), run(NEW, new, nki, tmp_path)
    assert one.dtype == two.dtype
    assert one.shape == two.shape
    assert one.tobytes() == two.tobytes()
    assert np.any(one)


def test_the_table_has_rows() -> None:
    assert len(ROWS) >= 20
