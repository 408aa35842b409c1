"""Frameworks that are registered with kernels: by hand, by name, and by an entry point of another distribution."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.driver import frameworks

PACKAGE = """
class Box:
    def __init__(self, array):
        self.array = array

class Boxes:
    asked = 0

    def claims(self, args, kwargs):
        self.asked += 1
        return any(isinstance(each, Box) for each in (*args, *kwargs.values()))

    def call(self, kernel, args, kwargs):
        return Box(kernel.run(tuple(each.array for each in args), kwargs))

BOXES = Boxes()
"""


@nki.jit
def doubled(a: Any) -> Any:
    out, tile = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package with arrays of its own and a framework for them, and a registry that is empty."""
    for name, empty in (("_INSTALLED", []), ("_DECLARED", {}), ("_ASKED", set())):
        monkeypatch.setattr(frameworks, name, empty)
    (tmp_path / "boxes_of_a_test.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "boxes_of_a_test", raising=False)
    return __import__("boxes_of_a_test")


A = np.ones((128, 4), np.float32)


def test_a_value_of_no_framework_is_refused(boxes: Any) -> None:
    with pytest.raises((NkiError, AttributeError)):
        doubled(boxes.Box(A))
    assert boxes.BOXES.asked == 0


def test_installed(boxes: Any) -> None:
    frameworks.install(boxes.BOXES)
    frameworks.install(boxes.BOXES)
    assert np.array_equal(doubled(boxes.Box(A)).array, 2 * A)
    assert np.array_equal(doubled(A), 2 * A)
    assert boxes.BOXES.asked == 1, "arrays of NumPy are nobody's"


def test_declared_by_the_name_of_the_package(boxes: Any) -> None:
    frameworks.declare("boxes_of_a_test", "boxes_of_a_test:BOXES")
    assert np.array_equal(doubled(A), 2 * A) and boxes.BOXES.asked == 0
    assert np.array_equal(doubled(boxes.Box(A)).array, 2 * A)


def test_found_by_an_entry_point(boxes: Any, tmp_path: Path) -> None:
    about = tmp_path / "boxes_of_a_test-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: boxes_of_a_test\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[nki.frameworks]\nboxes_of_a_test = boxes_of_a_test:BOXES\n")
    assert np.array_equal(doubled(boxes.Box(A)).array, 2 * A)
    assert boxes.BOXES.asked == 1


def test_values_within_trees_are_met(boxes: Any) -> None:
    class Wide:
        def claims(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
            return isinstance(args[0], list)

        def call(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return kernel.run((args[0][0].array,), kwargs)

    boxes.WIDE = Wide()
    frameworks.declare("boxes_of_a_test", "boxes_of_a_test:WIDE")
    loop: list[Any] = [boxes.Box(A)]
    loop.append(loop)
    assert np.array_equal(doubled(loop), 2 * A)


def test_a_framework_that_could_not_be_loaded_is_asked_for_again(boxes: Any) -> None:
    frameworks.declare("boxes_of_a_test", "boxes_of_a_test:LATER")
    with pytest.raises(AttributeError, match="LATER"):
        doubled(boxes.Box(A))
    boxes.LATER = boxes.BOXES
    assert np.array_equal(doubled(boxes.Box(A)).array, 2 * A)
