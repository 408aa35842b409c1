"""nki.compiler: settings are checked and reported, and what has no effect says so."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.compiler import AddressRotation, CompileConfig, SpecializationConfig
from nki.core.errors import LaunchError
from tests.support import both

X = np.arange(6, dtype=np.float32).reshape(2, 3)
OTHER = {"address_rotation": AddressRotation.ENABLE, "nki_alloc_fallback": False}
IDLE = ("non_ssa_legalization", "barrier_check", "nki_alloc_fallback")
SWITCHES = [field.name for field in dataclasses.fields(CompileConfig)]


def kernel(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_is_reported_and_one_without_effect_says_so(name: str) -> None:
    config = CompileConfig(**{name: OTHER.get(name, True)})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = nki.jit(kernel, compile_config=config)
    assert [f"CompileConfig.{name}=" in str(w.message) for w in told] == [True] * (name in IDLE)
    np.testing.assert_array_equal(made(X), X)
    assert [name in statement for statement in made.report.statements] == [True]
    assert made.report.to_json()["statements"] == list(made.report.statements)


def test_defaults_are_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = nki.jit(compile_config=CompileConfig(), specialization_config=SpecializationConfig())(kernel)
    np.testing.assert_array_equal(made(X), X)
    assert made.report.statements == ()


@pytest.mark.parametrize("name", [*SWITCHES, "allow_nested_config_override"])
def test_a_switch_refuses_other_values(name: str) -> None:
    kind = CompileConfig if name in SWITCHES else SpecializationConfig
    with pytest.raises(LaunchError, match=r"jit\.config"):
        kind(**{name: 1})


@pytest.mark.parametrize("name", ["compile_config", "specialization_config"])
def test_jit_refuses_other_settings(name: str) -> None:
    with pytest.raises(LaunchError, match=r"jit\.config"):
        nki.jit(kernel, **{name: {"barrier_check": True}})


def nested(inner: CompileConfig | None, outer: CompileConfig | None, override: bool = False) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        called = nki.jit(kernel, compile_config=inner)
        special = SpecializationConfig(allow_nested_config_override=override)
        return nki.jit(lambda a: (called(a),), compile_config=outer, specialization_config=special)


CHECKED = CompileConfig(barrier_check=True)


@pytest.mark.parametrize(("inner", "outer"), [(None, CHECKED), (CHECKED, CHECKED), (CompileConfig(), None)])
def test_a_called_kernel_may_agree(inner: CompileConfig | None, outer: CompileConfig | None) -> None:
    np.testing.assert_array_equal(both(nested(inner, outer), X)[0], X)


def test_a_called_kernel_that_disagrees_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"jit\.nested-config"):
        nested(CHECKED, None)(X)


def test_the_launched_kernel_may_override_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"jit\.nested-override"):
        np.testing.assert_array_equal(nested(CHECKED, None, True)(X)[0], X)


def test_old_keywords_still_warn() -> None:
    with pytest.warns(DeprecationWarning, match="mode is deprecated"):
        nki.jit(kernel, mode="baremetal")
    with pytest.raises(LaunchError, match=r"jit\.argument"):
        nki.jit(kernel, nonsense=1)
