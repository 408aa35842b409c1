"""All thirty points have tests, and these tests exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.semantics_points.table import POINTS, Point
from tests.together import together

TESTS = Path(__file__).parents[1]


OF_TABLE = frozenset(test for point in POINTS.values() for test in point.tests)


@cache
def written(file: str) -> frozenset[str]:
    """The tests in a file below ``tests``."""
    nodes = ast.parse((TESTS / file).read_text(encoding="utf-8")).body
    return frozenset(n.name for n in nodes if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


@together("number, point", POINTS.items())
def test_point_has_tests(number: int, point: Point) -> None:
    assert 1 <= number <= 30 and point.tests
    for test in point.tests:
        file, _, name = test.partition("::")
        assert file.rpartition("/")[2].startswith("test_")  # so that pytest collects it
        assert name in written(file)


def test_there_are_thirty_points() -> None:
    assert list(POINTS) == list(range(1, 31))


def test_no_test_of_this_folder_is_left_out() -> None:
    files = sorted(path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name)
    own = {f"semantics_points/{file}::{name}" for file in files for name in written(f"semantics_points/{file}")}
    assert own == {test for test in OF_TABLE if test.startswith("semantics_points/")}
