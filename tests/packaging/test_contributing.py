"""The instruction that CONTRIBUTING.md declares can be declared, and does what its text says."""

import re
import sys

from tests.packaging.building import REPOSITORY, run

PRELUDE = """
from typing import Any
from nki.isa.shared import same_elements
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.instruction import REGISTRY, instruction
from nki.spec.operand import Dst, Name, Src
from nki.spec.rule import Rule
"""

USE = """
from types import SimpleNamespace
import numpy as np

class OneTensor:
    def load(self, view): return view
    def constant(self, value): return np.float32(value)
    def multiply(self, a, b): return a * b
    def store(self, view, values): view[...] = values

declared = REGISTRY["halve"]
assert list(declared.operands) == ["dst", "src", "name"]
assert [rule.code for rule in declared.rules] == ["shapes", "dst-dtype"]
wrong = SimpleNamespace(dst=SimpleNamespace(dtype=SimpleNamespace(is_float=False)))
assert not declared.rules[1].holds(wrong, None)
assert declared.rules[1].actual(wrong, None).startswith("dst is ")
src, dst = np.array([[3.0, -5.0]], np.float32), np.zeros((1, 2), np.float32)
declared.execute(SimpleNamespace(dst=dst, src=src), OneTensor())
assert dst.tolist() == [[1.5, -2.5]]
"""


def test_the_declared_instruction_works() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    run(sys.executable, "-c", PRELUDE + snippet + USE, cwd=REPOSITORY)  # a process of its own: the registry is global
