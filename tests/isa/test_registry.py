"""Every declared instruction has a legal example, every rule an example that breaks it."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from typing import Any

import numpy as np
import pytest

import nki  # noqa: F401 - fills the registry
from nki.core.errors import NkiError
from nki.spec.instruction import REGISTRY
from tests.isa import examples
from tests.isa.registry import Breaks, Legal
from tests.support import both, rejection
from tests.together import together

ALL: list[Any] = [
    example
    for module in pkgutil.iter_modules(examples.__path__)
    for example in importlib.import_module(f"tests.isa.examples.{module.name}").EXAMPLES
]
LEGAL = [(e, target) for e in ALL if isinstance(e, Legal) for target in e.targets]
BREAKS = [e for e in ALL if isinstance(e, Breaks)]


@pytest.mark.filterwarnings("ignore:.lint.integer-precision.")  # some have integers that float32 rounds
@together("example, target", LEGAL, by=lambda example, _: example.instruction)
def test_legal_example_runs_and_agrees_with_its_reference(example: Legal, target: str) -> None:
    arguments = example.arguments()
    result = both(example.kernel, *arguments, target=target, lnc=example.lnc)
    if example.expected is None:
        return
    wanted = example.expected(*arguments)
    for got, want in zip(*((r if isinstance(r, tuple) else (r,)) for r in (result, wanted)), strict=True):
        got, want = np.asarray(got), np.asarray(want)
        assert got.shape == want.shape
        np.testing.assert_allclose(_wide(got), _wide(want), rtol=example.rtol, atol=example.atol)


@together("example", BREAKS, by=lambda example: example.code.partition(".")[0])
def test_breaking_example_is_refused_with_the_code_of_its_rule(example: Breaks) -> None:
    instruction, _, code = example.code.partition(".")
    rules = {rule.code: rule for rule in REGISTRY[instruction].rules}
    if rules[code].severity == "warning":
        with pytest.warns(UserWarning, match=example.code):
            both(example.kernel, *example.arguments(), target=example.target, lnc=example.lnc)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error: NkiError = rejection(example.kernel, *example.arguments(), target=example.target, lnc=example.lnc)
    assert error.code == example.code
    assert error.fix and error.rule and error.source
    assert error.location.frames and error.location.frames[0].file.endswith(".py")


def test_every_instruction_has_a_legal_example() -> None:
    assert set(REGISTRY) - {e.instruction for e in ALL if isinstance(e, Legal)} == set()


def test_every_rule_has_a_breaking_example() -> None:
    rules = {f"{name}.{rule.code}" for name, i in REGISTRY.items() for rule in i.rules}
    assert rules - {e.code for e in BREAKS} == set()


def _wide(values: np.ndarray) -> np.ndarray:
    return (
        values.astype(np.float64) if values.dtype.kind != "V" or values.dtype.names is None else values.view(np.uint8)
    )
