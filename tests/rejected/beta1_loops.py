"""Errors of loops over numbers of run time of the first NKI."""

from __future__ import annotations

from typing import Any

import nki.beta1 as nki
import nki.beta1.language as nl
import nki.beta1.typing as nt
from tests.rejected.support import INTS, WIDE, Topic, edit

TOPIC = Topic(__file__, jit=nki.jit)
refused = TOPIC.refused


@refused(
    "beta1.while_loop_requires_unconditional_entry",
    INTS[:1, :1],
    at="number < 10",
    cure=edit(
        "while number < 10:", "cond = nt.scalar(True)\n    while cond:", "+ 1", "+ 1\n        cond = number < 10"
    ),
)
def while_of_a_number(a: Any) -> Any:
    out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
    number = nt.scalar(a)
    while number < 10:
        number = number + 1
    nl.store(out, number)
    return out


@refused(
    "beta1.dynamic_control_flow_not_supported",
    INTS[:1, :1],
    at="nl.static_range(number)",
    cure=edit("nl.static_range(", "nl.sequential_range("),
)
def static_range_of_a_number(a: Any) -> Any:
    out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
    number = nt.scalar(a)
    nl.store(out, 0)
    for i in nl.static_range(number):
        nl.store(out, i)
    return out


@refused(
    "beta1.dynamic_control_flow_not_supported",
    INTS[:1, :1],
    at="break",
    cure=edit("        break\n", ""),
)
def break_in_a_loop_over_a_number(a: Any) -> Any:
    out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0)
    for i in nl.sequential_range(nt.scalar(a)):
        nl.store(out, i)
        break
    return out


@refused(
    "beta1.local_variable_used_out_of_scope",
    INTS[:1, :1],
    at="steps",
    cure=edit("steps = 0", "steps = nt.scalar(0)"),
)
def python_counts_trips(a: Any) -> Any:
    out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
    steps = 0
    for _ in nl.sequential_range(nt.scalar(a)):
        steps = steps + 1
    nl.store(out, steps)
    return out


@refused(
    "beta1.local_variable_used_out_of_scope",
    INTS[:1, :1],
    at="nl.store(out, last)",
    cure=edit("nl.store(out, 0)", "last = nl.zeros((1, 1), a.dtype)", "last = nl.load(a)", "last[...] = nl.load(a)"),
)
def tile_of_the_last_trip(a: Any) -> Any:
    out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0)
    for _ in nl.sequential_range(nt.scalar(a)):
        last = nl.load(a)
    nl.store(out, last)
    return out


@refused(
    "beta1.unsupported_expression_in_mask",
    WIDE,
    INTS[:1, 1:2],
    at="i * 64 + i_p < 128",
    cure=edit(", mask=i * 64 + i_p < 128", ""),
)
def mask_of_a_number(a: Any, n: Any) -> Any:
    out = nl.ndarray((128, 16), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:16]
    for i in nl.sequential_range(nt.scalar(n)):
        nl.store(out[i * 64 + i_p, i_f], nl.load(a[i * 64 + i_p, i_f], mask=i * 64 + i_p < 128))
    return out
