"""The instruction and the converter of CONTRIBUTING.md can be declared, and do what the text says."""

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


CONVERTER = """
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import CONVERTERS, Call, converts, together
from nki.graph.ir import Value
"""

CONVERTED = """
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from nki.graph.importers.torch.import_graph import import_graph

CONVERTERS["aten.atan2.default"] = _atan2
graph = make_fx(torch.atan2, tracing_mode="fake")(torch.ones(3, dtype=torch.int32), torch.ones(3))
ops = list(import_graph(graph).module.walk())
assert [op.name for op in ops] == ["convert", "atan2"], ops
assert ops[1].results[0].type.dtype.name == "float32"
"""


def snippets() -> dict[str, str]:
    """The code of the text, by its first word."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return {re.split(r"\W", code[1:])[0]: code for code in found}


def test_every_snippet_is_tested() -> None:
    assert snippets().keys() == {"instruction", "converts"}


# In processes of their own: both tables are global.
def test_the_declared_instruction_works() -> None:
    run(sys.executable, "-c", PRELUDE + snippets()["instruction"] + USE, cwd=REPOSITORY)


def test_the_converter_works() -> None:
    run(sys.executable, "-c", CONVERTER + snippets()["converts"] + CONVERTED, cwd=REPOSITORY)
