"""Patterns that another distribution installs: used without a line of this package, refused with its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from nki.core.errors import ArgumentError
from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.patterns.registry import _entries, _loaded
from nki.graph.patterns.selection import fingerprint, pattern_names
from nki.interop.jax import compile as compile_jax
from tests.graph import xla

_MODULE = """
import nki
import nki.language as nl
from nki.graph.patterns import Match, Pattern, either_way


@nki.jit
def hypotenuse(x, y, scale):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    nl.store(out, nl.multiply(nl.sqrt(nl.add(nl.multiply(a, a), nl.multiply(b, b))), scale))
    return out


def match(r, op):
    total = r.maker(op.operands[0], "add") if op.name == "sqrt" else None
    squares = [] if total is None else [r.maker(value, "multiply") for value in total.operands]
    if len(squares) != 2 or any(each is None or each.operands[0] is not each.operands[1] for each in squares):
        return None
    return Match(tuple(each.operands[0] for each in squares), op.results, {"scale": 1.0})


HYPOTENUSE = Pattern("hypotenuse", match, hypotenuse)
"""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with one pattern, from the text of its module."""

    def make(name: str, text: str = _MODULE, version: str = "1.0", value: str = "HYPOTENUSE") -> Path:
        folder = tmp_path / f"{name}-{version}"
        metadata = folder / f"{name}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (folder / f"{name}.py").write_text(text)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(f"[nki.patterns]\nhypotenuse = {name}:{value}\n")
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop(name, None)
        return folder

    yield make
    _entries.cache_clear()
    _loaded.cache_clear()


def _length(x: jax.Array, y: jax.Array) -> jax.Array:
    return jax.numpy.sqrt(x * x + y * y)


_INPUTS = [np.random.default_rng(3).standard_normal((64, 48)).astype(np.float32) for _ in range(2)]


def test_an_installed_pattern_is_found_and_used(install: Install) -> None:
    install("kernels_a")
    assert "hypotenuse" in pattern_names()
    made = compile_module(xla.lowered(_length, *_INPUTS), target="trn2")
    assert [each.pattern for each in made.report.replaced] == ["hypotenuse"]
    assert made.report.kernels == {"call": 1}
    assert "hypotenuse at" in str(made.report)
    (found,) = made.run(_INPUTS)
    np.testing.assert_allclose(found, np.hypot(*(array.astype(np.float64) for array in _INPUTS)), rtol=2e-6)
    assert compile_module(xla.lowered(_length, *_INPUTS), target="trn2", patterns=[]).report.replaced == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("total = r.maker", 'raise ValueError("odd")\n    total = r.maker', "its matcher raises ValueError: odd"),
        ("return Match(", "return (", "its matcher returns a tuple"),
        ("nl.store(out,", "nl.store(out.reshape((64, 48)),", "its kernel returns float32[3072] for"),
        ("a, b =", 'assert 0, "odd"\n    a, b =', "its kernel raises AssertionError: odd"),
        ("import nki\n", "import not_there\n", "cannot be loaded: ModuleNotFoundError"),
        ("HYPOTENUSE = Pattern", "HYPOTENUSE = str", "is a str"),
        ('"hypotenuse", match', '"other", match', "is pattern 'other'"),
    ],
)
def test_a_pattern_that_fails_is_refused_with_its_distribution(install: Install, old: str, new: str, said: str) -> None:
    text = _MODULE.replace(old, new)
    if "3072" in said:
        text = text.replace("nl.ndarray(x.shape", "nl.ndarray((3072,)")
    if new.endswith("str"):
        text = text.replace('str("hypotenuse", match, hypotenuse)', 'str("hypotenuse")')
    install("kernels_b", text)
    with pytest.raises(GraphError) as caught:
        compile_module(xla.lowered(_length, *_INPUTS), target="trn2")
    assert caught.value.code == "graph.pattern"
    assert "'hypotenuse' of distribution kernels_b 1.0" in caught.value.message and said in caught.value.message


def test_an_error_of_a_kernel_says_which_pattern_wanted_it(install: Install) -> None:
    install("kernels_b", _MODULE.replace("op.results, {", 'op.results, {"wrong": 1, '))
    with pytest.raises(ArgumentError) as caught:
        compile_module(xla.lowered(_length, *_INPUTS), target="trn2")
    (note,) = caught.value.__notes__
    assert note.startswith("pattern 'hypotenuse' of distribution kernels_b 1.0 wanted this kernel for ")
    assert caught.value.to_json()["facts"]["pattern"] == "pattern 'hypotenuse' of distribution kernels_b 1.0"


def test_two_distributions_with_one_name_are_refused(install: Install) -> None:
    install("kernels_c")
    install("kernels_d")
    with pytest.raises(GraphError, match=r"kernels_c 1\.0, kernels_d 1\.0") as caught:
        compile_module(xla.lowered(_length, *_INPUTS), target="trn2")
    assert caught.value.code == "graph.pattern"
    assert compile_module(xla.lowered(_length, *_INPUTS), target="trn2", patterns=["attention"]).report.replaced == ()


def test_the_key_of_a_compiled_model_depends_on_the_patterns(install: Install) -> None:
    without = fingerprint(None)
    old = install("kernels_e")
    one = fingerprint(None)
    (old / "kernels_e-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: kernels_e\nVersion: 1.1\n")
    _forget("kernels_e")
    newer = fingerprint(None)
    assert len({without, one, newer}) == 3
    assert fingerprint(["attention"]) == fingerprint(["attention"])


@pytest.mark.parametrize("old, new", [("nl.add(", "nl.subtract("), ("len(squares) != 2", "len(squares) < 2")])
def test_the_key_of_a_compiled_model_depends_on_the_code_of_patterns(install: Install, old: str, new: str) -> None:
    install("kernels_f")
    one = fingerprint(None)
    _forget("kernels_f")
    assert fingerprint(None) == one
    path = Path(sys.path[0], "kernels_f.py")
    path.write_text(_MODULE.replace(old, new))
    _forget("kernels_f")
    assert fingerprint(None) != one


def test_the_key_of_a_compiled_model_depends_on_what_patterns_read(install: Install) -> None:
    install("kernels_f", _MODULE.replace("len(squares) != 2", "len(squares) not in SIZES") + "\nSIZES = [2]\n")
    one = fingerprint(None)
    module = sys.modules["kernels_f"]
    module.SIZES = [2]
    assert fingerprint(None) == one, "an equal value"
    module.SIZES.append(3)
    assert fingerprint(None) != one


def _forget(module: str) -> None:
    sys.modules.pop(module, None)
    _entries.cache_clear()
    _loaded.cache_clear()


def test_a_function_of_jax_is_compiled_again_when_patterns_appear(install: Install) -> None:
    fast = compile_jax(_length, target="trn2")
    before = fast.executable(*_INPUTS)
    install("kernels_g")
    after = fast.executable(*_INPUTS)
    assert before.report.replaced == () and [each.pattern for each in after.report.replaced] == ["hypotenuse"]
    assert fast.executable(*_INPUTS) is after
