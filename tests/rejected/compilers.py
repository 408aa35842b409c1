"""Forms that compute plausible values in a plain simulation and are refused by the compiler for the hardware."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import INTS, Topic, X, call, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused(
    "tensor_scalar.operand-dtype",
    X,
    INTS,
    at="nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=c)",
    cure=edit("nl.load(b[:, 0:1])", "nl.load(b[:, 0:1], dtype=nl.float32)"),
)
def integer_column(a: Any, b: Any) -> None:
    t, c = nl.load(a), nl.load(b[:, 0:1])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=c)


@refused(
    "tensor_scalar.operand-dtype",
    X,
    at="nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=c)",
    cure=edit("nl.bfloat16", "nl.float32"),
)
def bfloat16_column_in_the_second_place(a: Any) -> None:
    t, c = nl.load(a), nl.load(a[:, 0:1], dtype=nl.bfloat16)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=c)


@refused(
    "operand.column",
    X,
    at="nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=t[:, 0:2])",
    cure=edit("t[:, 0:2]", "t[:, 0:1]"),
)
def operand_with_two_columns(a: Any) -> None:
    t = nl.load(a)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=t[:, 0:2])


@refused(
    "tensor_scalar.mixed-classes",
    INTS,
    at="nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1, op1=nl.right_shift, operand1=2)",
    cure=edit(
        "nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1, op1=nl.right_shift, operand1=2)",
        "nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1)\n"
        "    nisa.tensor_scalar(dst=t, data=t, op0=nl.right_shift, operand0=2)",
    ),
)
def shift_after_an_addition(a: Any) -> None:
    t = nl.load(a)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1, op1=nl.right_shift, operand1=2)


@refused(
    "operand.operator",
    INTS,
    at="nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.divide)",
    cure=edit(
        "nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.divide)",
        "tile = nl.ndarray(t.shape, nl.float32)\n"
        "    nisa.reciprocal(dst=tile, data=t)\n"
        "    nisa.tensor_tensor(dst=t, data1=t, data2=tile, op=nl.multiply)",
    ),
)
def division_of_integers(a: Any) -> None:
    t = nl.load(a)
    nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.divide)


@refused(
    "access.out-of-bounds",
    np.ones((7, 8), np.float32),
    lnc=2,
    at="a[nl.ds(nl.program_id(0) * half, half)]",
    cure=call(np.ones((8, 8), np.float32)),
)
def odd_channels_on_two_cores(a: Any) -> None:
    half = (a.shape[0] + 1) // 2
    nl.load(a[nl.ds(nl.program_id(0) * half, half)])
