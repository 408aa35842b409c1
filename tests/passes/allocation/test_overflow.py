"""What is said when on-chip memory does not suffice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki.core.errors import VerificationError
from nki.passes.allocation.addresses import PASS
from tests.passes.allocation import overflowing
from tests.passes.allocation.support import context, traced

GUIDE = "nki/guides/architecture/trainium_inferentia2_arch.rst"

GOLDENS = [
    (
        overflowing.too_many_tiles,
        (128, 65536),
        "float32",
        19,
        """\
262148 bytes of each SBUF partition are needed at once, at nisa.dma_copy
       bytes  live tensors
      262144  8 x sbuf0 float32[128, 8192]  overflowing.py:18
           4  scale float32[128, 1]  overflowing.py:14""",
        "212984 bytes of each SBUF partition of trn2 can be allocated",
        "make the tensors of overflowing.py:18 smaller, or use them over fewer instructions",
    ),
    (
        overflowing.too_many_banks,
        (128, 1024),
        "float32",
        34,
        """\
10 PSUM banks are needed at once, at nisa.nc_matmul
       bytes  live tensors
       20480  5 x sum0 float32[128, 1024]  overflowing.py:31""",
        "trn2 has 8 PSUM banks of 2048 bytes per partition",
        "make the tensors of overflowing.py:31 smaller, or use them over fewer instructions",
    ),
    (
        overflowing.around_explicit_addresses,
        (128, 512),
        "float32",
        48,
        """\
no way was found to place the SBUF tensors around those with an explicit address: 121024 bytes of each partition are \
live at once, but 221024 would be taken, at nisa.memset
       bytes  live tensors
      120000  large float32[128, 30000]  overflowing.py:46
        1024  sbuf0 float32[128, 256]  overflowing.py:45""",
        "212984 bytes of each SBUF partition of trn2 can be allocated",
        "omit the address of sbuf0 (overflowing.py:45)",
    ),
    (
        overflowing.in_a_loop,
        (128, 8192),
        "float32",
        62,
        """\
229376 bytes of each SBUF partition are needed at once, at nisa.dma_copy
       bytes  live tensors
      196608  6 x kept0 float32[128, 8192]  overflowing.py:57
       32768  work float32[128, 8192]  overflowing.py:61""",
        "212984 bytes of each SBUF partition of trn2 can be allocated",
        "make the tensors of overflowing.py:57 smaller, or use them over fewer instructions",
    ),
    (
        overflowing.many_sums,
        (128, 512),
        "bfloat16",
        100,
        """\
12 PSUM banks are needed at once, at nisa.tensor_scalar
       bytes  live tensors
       16384  8 x sum0 float32[128, 512]  overflowing.py:98
        8192  4 x sum2 bfloat16[128, 512]  overflowing.py:98""",
        "trn2 has 8 PSUM banks of 2048 bytes per partition",
        "make the tensors of overflowing.py:98 smaller, or use them over fewer instructions",
    ),
]


@pytest.mark.parametrize(
    ("kernel", "shape", "dtype", "line", "message", "rule", "fix"),
    GOLDENS,
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_message(
    kernel: Callable[..., Any], shape: Any, dtype: str, line: int, message: str, rule: str, fix: str
) -> None:
    array = np.zeros(shape, np.float32 if dtype == "float32" else ml_dtypes.bfloat16)
    with pytest.raises(VerificationError) as caught:
        PASS.run(traced(kernel, array), context())
    error = caught.value
    assert (error.code, error.message) == ("memory.capacity", message)
    assert (error.rule, error.source, error.fix) == (rule, GUIDE, fix)
    assert error.location.frame is not None
    assert (error.location.frame.line, error.location.frame.function) == (line, kernel.__name__)


def test_numbers_for_programs() -> None:
    with pytest.raises(VerificationError) as caught:
        PASS.run(traced(overflowing.too_many_banks, np.zeros((128, 1024), np.float32)), context())
    facts = caught.value.to_json()["facts"]
    assert (facts["memory"], facts["capacity"], facts["needed"], facts["packed"]) == ("PSUM", 16384, 20480, 20480)
    assert facts["position"] == 9
    assert len(facts["tensors"]) == 1
