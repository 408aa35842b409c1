"""The cases of the library's benchmark, and what it counts."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks.library import measure, sizes
from benchmarks.library.case import Case
from benchmarks.library.cases import all_cases

from nki.language import float32
from nkilib.catalogue import CATALOGUE
from tests.together import together

CASES = all_cases()


def test_cases_are_of_kernels_that_there_are_and_have_names_of_their_own() -> None:
    assert {case.kernel for case in CASES} <= CATALOGUE.keys()
    assert [key for key, times in Counter(case.key for case in CASES).items() if times > 1] == []


@together("name", sorted({case.kernel for case in CASES}))
def test_least_times_and_shapes(name: str) -> None:
    for case in CASES:
        if case.kernel == name:
            assert measure.least(case)[0] > 0
            assert all(not isinstance(value, np.ndarray) for value in case.shapes().values())


def test_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def arguments(make):
        return {"x": make((4, 8), float32)}

    case = Case("cumsum", "small", arguments, 0, 256)
    assert measure.error(case) < 1e-6
    monkeypatch.setattr(measure, "reference", lambda name: lambda x, axis=-1: np.cumsum(x, -1) + 1)
    assert measure.error(case) > 0.1


@pytest.mark.parametrize(
    ("made", "wanted", "error"),
    [
        ([1.0, -1.0, 8.5], [1.0, -1.0, 8.0], 0.0625),  # a part of the number itself
        ([3.0, 4.0, 0.5], [3.0, 4.0, 0.0], 0.5 / (25 / 3) ** 0.5),  # or of the root mean square
        ([np.inf, np.nan, 2.0], [np.inf, np.nan, 1.0], 1.0),
        ([np.nan, 1.0], [1.0, 1.0], np.inf),
        ([3e38, 1.0], [np.inf, 1.0], np.inf),
        ([0.25], [0.0], 0.25),
    ],
)
def test_a_difference_is_a_part_of_what_is_large(made: list[float], wanted: list[float], error: float) -> None:
    assert measure._difference(np.array(made), np.array(wanted)) == pytest.approx(error)


def test_lines_are_counted_without_words(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "part"
    package.mkdir(parents=True)
    (package / "other.py").write_text("X = 1\n")
    (package / "one.py").write_text(
        '"""Words.\n\nMore."""\n\nfrom lib.part.other import X\n\n\n'
        'def f():  # words\n    """Words."""\n    return (\n        X\n    )\n'
    )
    assert sizes.size(package / "one.py", tmp_path, "lib") == sizes.Size(files=2, lines=6, longest=4, functions=1)
