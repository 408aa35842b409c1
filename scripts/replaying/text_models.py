"""A model in StableHLO's own text, on one core and on two."""

from __future__ import annotations

from pathlib import Path

from scripts.replaying.case import PATTERNS, Found, Numbers
from scripts.replaying.models import of_executables

from nki.graph.compile import compile_module


def run(name: str) -> Found:
    """Compile and run it."""
    text = Path(__file__).with_name("attention.mlir").read_text(encoding="utf-8")
    numbers = Numbers("attention")
    model = compile_module(
        text, target="trn2", name="attention", patterns=frozenset(PATTERNS), lnc=2 if name.endswith("two cores") else 1
    )
    if [each.pattern for each in model.report.replaced] != ["attention"]:
        raise AssertionError("the pattern was not found")
    results = model.run([numbers.floats((1, 2, 256, 32)), numbers.floats((32, 32), 0.25)])
    return of_executables([model], results)
