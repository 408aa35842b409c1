"""`help` of an instruction shows its signature, its defaults, and an entry for every argument."""

from __future__ import annotations

import pydoc
import re
from typing import Any

import nki.isa as nisa
from nki.spec.instruction import Instruction
from tests.together import together

ALL = sorted(name for name, value in vars(nisa).items() if isinstance(value, Instruction))


@together("name", ALL)
def test_help_has_every_argument(name: str) -> None:
    instruction: Instruction[Any] = getattr(nisa, name)
    shown = pydoc.plain(pydoc.render_doc(instruction))
    head, _, entries = shown.partition("Args:\n")
    described = {each for names in re.findall(r"(?m)^ {8}(\w+(?:, \w+)*):", entries) for each in names.split(", ")}
    parameters = instruction.__signature__.parameters
    assert set(parameters) <= described
    assert f"{name}(" in head
    for each in parameters:
        assert re.search(rf"\b{each}\b", head.partition(f"{name}(")[2])


def test_help_has_defaults_and_engines() -> None:
    shown = pydoc.plain(pydoc.render_doc(nisa.tensor_scalar))
    assert "reverse0: 'Flag' = False" in shown or "reverse0=False" in shown
    assert "engine: that runs it: nisa.engine.vector" in shown
