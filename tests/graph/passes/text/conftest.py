"""Each pass of the graph compiler as text: files ``PASS.txt`` show what it does to models in StableHLO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nki.core.errors import NkiError
from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import STAGES
from nki.graph.passes.rewriter import Rewriter
from nki.graph.stablehlo import mlir
from nki.graph.stablehlo.read import read
from nki.graph.stablehlo.write import write
from nki.target.load import load_target
from tests.text_cases import Case, TextFile, collected

FILES = "*.txt"
UNCHANGED = "unchanged"
PASSES = {step.__name__: step for steps in STAGES.values() for step in steps}


class Squares:
    """A pattern: products of a value with itself become calls of a kernel "square"."""

    name = "square"

    def replaced(self, r: Rewriter, op: Op, context: GraphContext) -> Sequence[Value] | None:
        """The call in place of a product."""
        if op.name != "multiply" or op.operands[0] is not op.operands[1]:
            return None
        return r.op("custom_call", [op.operands[0]], [op.results[0].type], {"call_target_name": "square"})


def shown(module: Module) -> str:
    """A model as StableHLO's own printer writes it, without places in the source and names of kernels."""
    text = str(mlir.parse(write(module)).operation.get_asm(enable_debug_info=False))
    lines = re.sub(r', nki.name = "\w+"', "", text).strip().splitlines()
    assert lines[0].startswith("module") and lines[-1] == "}"
    return "\n".join(line.removeprefix("  ") for line in lines[1:-1])


def run(case: Case) -> str:
    """What a pass makes of a model; `UNCHANGED`, or the error that refuses it."""
    before = shown(read(case.given))
    assert before == case.given, f"the printer writes it as\n{before}"
    context = GraphContext(load_target("unit"), patterns=[Squares()], **case.settings)
    try:
        after = shown(PASSES[case.file.stem](read(case.given), context))
    except NkiError as error:
        return f"{error.code}: {error.message}"
    return UNCHANGED if after == before else after


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> TextFile | None:
    """The files of this folder."""
    return collected(file_path, parent, run) if file_path.match(FILES) else None
