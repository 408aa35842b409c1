"""Every pass has its file of cases, to which its description leads; and programs are read as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.passes.pipeline import PIPELINE
from nki.tools.compile.stages import stage_lines
from tests.ir.kernels import array, looped, scaled_sum, traced
from tests.passes.text.reader import read
from tests.text_cases import cases

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "compiler.md"
NAMES = sorted(item.name for item in PIPELINE)


def test_every_pass_has_a_file_and_its_description_leads_there() -> None:
    assert sorted(path.stem for path in HERE.glob("*.txt")) == NAMES
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"### {name}\n" in page and f"](../tests/passes/text/{name}.txt)" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_shows_what_a_pass_does_and_what_it_leaves(name: str) -> None:
    wanted = [case.wanted for case in cases(HERE / f"{name}.txt")]
    assert len(wanted) >= 4
    assert any(text != "unchanged" for text in wanted)


@pytest.mark.parametrize("kernel", [scaled_sum, looped])
def test_what_is_printed_of_a_traced_kernel_is_read(kernel: object) -> None:
    arrays = [array()] * (2 if kernel is scaled_sum else 1)
    text = "\n".join(stage_lines(traced(kernel, *arrays)))  # type: ignore[arg-type]
    assert "\n".join(stage_lines([read(text)])) == text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%1 = alloc", "not understood: %1 = alloc"),
        ("vector  tensor_copy dst=x[0:8, 0:4] src=x[0:8, 0:4] sorce=x[0:8, 0:4]", "tensor_copy has no sorce"),
        ("vector  tensor_copy dst=x[0:8, 0:4]", "src is missing"),
        ("vector  tensor_scalar dst=x[0:8, 0:4] data=x[0:8, 0:4] op0=magic operand0=1.0", "no operator magic"),
        ("%2 = alloc sbuf float32[8, 4] x", "two buffers are called x"),
    ],
)
def test_a_line_that_is_none_is_refused(line: str, said: str) -> None:
    text = f"kernel k for toy, core 0 of 1:\n  %1 = alloc sbuf float32[8, 4] x\n  {line}\n  return x[0:8, 0:4]"
    with pytest.raises(ValueError, match=said):
        read(text)
