"""`nki check` goes on after an error that ends the trace: several mistakes of Python are told in one round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.kernels import write
from tests.tools.running import nki, nki_json

HEAD = """
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


def helper(t):
    {helper}


@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
"""
ARRAY = ("--arg", "a=128x64:float32")


def told(folder: Path, body: str, helper: str = "return t") -> list[tuple[int, str]]:
    """Lines of the body, counted from 1, or 0 for that of the helper, and codes of errors; the file is as before."""
    text = HEAD.format(helper=helper) + "".join(f"    {line}\n" for line in body.splitlines())
    file = write(folder, text)
    found: Any = nki_json("check", file, *ARRAY, code=1)
    assert found["complete"] is False
    start = HEAD.count("\n")
    errors = [each for each in found["findings"] if each["severity"] == "error"]
    return [(max(0, each["location"][0]["line"] - start), each["code"]) for each in errors]


def test_four_mistakes_are_told_at_once(tmp_path: Path) -> None:
    body = """nisa.dma_copy(dst=x, srce=a)
y = x + 1
if x > 3:
    nisa.tensor_tensr(dst=x, data1=x, data2=x, op=nl.add)
nisa.dma_copy(dst=out, src=nope)
return out"""
    assert told(tmp_path, body) == [
        (1, "call.unknown-argument"),
        (2, "tensor.arithmetic"),
        (3, "tensor.arithmetic"),
        (4, "kernel.exception"),
        (5, "python.undefined"),
    ]


def test_what_follows_from_an_error_is_not_told(tmp_path: Path) -> None:
    body = """y = nl.ndarray((128, 64), dtype=nl.float31, buffer=nl.sbuf)
nisa.tensor_copy(dst=y, src=x)
z = y[:, 0:8]
w, v = z, [z]
nisa.tensor_tensor(dst=w, data1=v[0], data2=z, op=nl.add)
nisa.dma_copy(dst=out, src=x, orig=3)
return out"""
    assert told(tmp_path, body) == [(1, "kernel.exception"), (6, "call.unknown-argument")]


@pytest.mark.parametrize(
    "statement",
    [
        "for k in nl.rnge(3):\n    nisa.memset(dst=x, value=1.0)",
        "while x.shap[0] > 3:\n    pass",
        "with nl.no_reordr():\n    nisa.memset(dst=x, value=1.0)",
        "u, v = nl.something(x)",
        "u: int = nl.something",
        "x[:, 0:4] += nl.something",
        "if nl.something:\n    pass\nelse:\n    nope()",
        "assert nl.something",
    ],
)
def test_statements_of_all_kinds_are_left_out(tmp_path: Path, statement: str) -> None:
    body = f"{statement}\nnisa.dma_copy(dst=out, src=x, orig=3)\nreturn out"
    count = statement.count("\n")
    assert told(tmp_path, body) == [(1, "kernel.exception"), (count + 2, "call.unknown-argument")]


def test_a_mistake_in_what_the_kernel_calls(tmp_path: Path) -> None:
    body = "helper(x)\nhelper(x)\nnisa.dma_copy(dst=out, src=x, orig=3)\nreturn out"
    found = told(tmp_path, body, helper="return nl.expp(t)")
    assert found == [(0, "kernel.exception"), (3, "call.unknown-argument")]


def test_broken_rules_before_and_a_result_on_chip_after(tmp_path: Path) -> None:
    body = "nisa.tensor_copy(dst=x[:, 0:4], src=x)\ny = x + 1\nreturn x"
    assert [code for _, code in told(tmp_path, body)] == ["tensor_copy.shapes", "tensor.arithmetic", "return.region"]


def test_one_mistake_is_told_once(tmp_path: Path) -> None:
    body = "for k in range(3):\n    y = x + k\nnisa.dma_copy(dst=out, src=x)\nreturn out"
    assert told(tmp_path, body) == [(2, "tensor.arithmetic")]


def test_the_kernel_speaks_once(tmp_path: Path) -> None:
    body = "print('hello')\ny = x + 1\nz = x + 2\nreturn out"
    text = HEAD.format(helper="pass") + "".join(f"    {line}\n" for line in body.splitlines())
    shown = nki("check", write(tmp_path, text), *ARRAY, code=1)
    assert shown.stdout.count("hello") <= 2  # the trace itself, and the search for the first broken rule
    assert shown.stderr.index("y = x + 1") < shown.stderr.index("z = x + 2")
