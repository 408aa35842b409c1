"""Cases that share a test all run, and each that fails is told."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.together import together


@together("number, name", [(0, "zero"), (3, "three")])
@together("other", [5, 7])
@pytest.mark.parametrize("factor", [0, 1])
def products(number: int, name: str, other: int, factor: int, seen: list[object]) -> None:
    seen.append((number, name, other, factor))
    assert number * other * factor == 0


def test_all_cases_run_and_what_fails_is_told_with_its_values() -> None:
    seen: list[object] = []
    products(factor=0, seen=seen)
    assert seen == [(0, "zero", 5, 0), (0, "zero", 7, 0), (3, "three", 5, 0), (3, "three", 7, 0)]
    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases fail") as caught:
        products(factor=1, seen=seen)
    (outer,) = caught.value.exceptions
    assert isinstance(outer, BaseExceptionGroup) and len(outer.exceptions) == 2
    assert outer.__notes__ == ["where number is 3, name is 'three'"]
    assert [inner.__notes__ for inner in outer.exceptions] == [["where other is 5"], ["where other is 7"]]


def test_what_does_not_raise_or_warn_is_told_too() -> None:
    @together("warned", [True, False])
    def warns(warned: bool) -> None:
        with pytest.warns(UserWarning):
            if warned:
                warnings.warn("told", stacklevel=1)

    with pytest.raises(BaseExceptionGroup, match="1 of 2") as caught:
        warns()
    assert isinstance(caught.value.exceptions[0], pytest.fail.Exception)


@together("number", [1, 2, 3, 5], by=lambda number: "odd" if number % 2 else "even")
def test_a_group_is_a_test_with_a_name(number: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert request.node.name == f"test_a_group_is_a_test_with_a_name[{'odd' if number % 2 else 'even'}]"
    assert tmp_path.is_dir()


def test_a_list_without_cases_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="without cases"):
        together("number", [])
