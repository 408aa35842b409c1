"""Which kernels a file has: each function once, by the name that it was defined under."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.core.errors import UsageError
from nki.tools.kernel_file import load_kernel
from tests.tools.kernels import GOOD
from tests.tools.running import nki


def named(tmp_path: Path, more: str) -> str:
    file = tmp_path / "kernels_with_aliases.py"
    file.write_text(GOOD + more, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    "more",
    [
        "",
        "for f in (double, nki.simulate(double)):\n    pass\n",
        "alias = double\n",
        "first = nki.simulate(double)\nsecond = double[2]\n",
    ],
)
def test_aliases_do_not_count(tmp_path: Path, more: str) -> None:
    assert load_kernel(named(tmp_path, more)).name == "double"


def test_an_alias_can_still_be_named(tmp_path: Path) -> None:
    file = named(tmp_path, "f = nki.simulate(double)\n")
    assert load_kernel(f"{file}::f").name == "f" and load_kernel(f"{file}::f").launch.eager
    assert not load_kernel(file).launch.eager


def test_one_object_under_two_names_is_one_kernel(tmp_path: Path) -> None:
    assert load_kernel(named(tmp_path, "f = g = double\ndel double\n")).name == "f"


def test_settings_that_differ_are_told_apart_where_no_name_is_that_of_the_function(tmp_path: Path) -> None:
    more = "fast, slow = nki.jit(double.func), nki.simulate(double)\ndel double\n"
    with pytest.raises(UsageError, match="defines 2 kernels: fast, slow"):
        load_kernel(named(tmp_path, more))


def test_two_functions_are_two_kernels(tmp_path: Path) -> None:
    more = "@nki.jit\ndef other(a):\n    return a\nagain = other\n"
    with pytest.raises(UsageError, match="defines 2 kernels: double, other"):
        load_kernel(named(tmp_path, more))


def test_the_command_takes_a_file_with_aliases(tmp_path: Path) -> None:
    file = named(tmp_path, "for f in (double, nki.simulate(double)):\n    pass\n")
    assert "accepted" in nki("check", file, "--arg", "a=8x8:float32").stdout
