"""Both spellings of the language: nki.language and nki.lang."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.lang
import nki.lang as nl
import nki.language
from nki.core.errors import RemovedError
from nki.lang import add, ndarray, shared_hbm, store
from nki.lang import load as load_tile
from tests.support import both, rejection
from tests.together import together

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def by_alias(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), 1.0))
    return out


def by_names(a: Any) -> Any:
    out = ndarray(a.shape, a.dtype, buffer=shared_hbm)
    store(out, add(load_tile(a), 1.0))
    return out


def by_path(a: Any) -> Any:
    out = nki.lang.ndarray(a.shape, a.dtype, buffer=nki.lang.shared_hbm)
    nki.lang.store(out, nki.lang.add(nki.lang.load(a), 1.0))
    return out


def by_long_name(a: Any) -> Any:
    out = nki.language.ndarray(a.shape, a.dtype, buffer=nki.language.shared_hbm)
    nki.language.store(out, nki.language.add(nki.language.load(a), 1.0))
    return out


def mixed(a: Any) -> Any:
    tile = nki.language.load(a)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    out = nl.ndarray(a.shape, nki.language.float32, buffer=nki.language.shared_hbm)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("kernel", [by_alias, by_names, by_path, by_long_name, mixed])
def test_a_kernel_runs_in_every_spelling(kernel: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(both(kernel, X), X + 1)


@together("name", nki.language.__all__)
def test_every_name_is_the_same_object(name: str) -> None:
    assert vars(nl)[name] is vars(nki.language)[name]


def test_the_lists_of_names_agree() -> None:
    assert nl.__all__ == nki.language.__all__
    assert "lang" in nki.__all__


def test_checks_of_the_source_see_the_short_spelling() -> None:
    def kernel(a: Any) -> Any:
        count = nisa.register_alloc(2)
        for _ in nl.dynamic_range(count):
            break
        return a

    error = rejection(kernel, X)
    frame = error.location.frames[0]
    assert error.code == "loop.escape"
    assert linecache.getline(frame.file, frame.line).strip() == "break"


def test_names_that_are_gone_are_gone_from_both() -> None:
    with pytest.raises(RemovedError, match=r"nki\.language\.arange"):
        nl.arange  # noqa: B018
    with pytest.raises(AttributeError, match="nonsense"):
        nl.nonsense  # noqa: B018
