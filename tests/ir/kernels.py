"""Kernels and programs for the tests of the IR, and how to trace them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.tensor import ScalarOffset, VectorOffset, View
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.spec.program import Program
from nki.spec.sink import current_sink
from nki.target.load import load_target

TILE = (128, 64)


def traced(kernel: Callable[..., Any], *arguments: Any, target: str = "trn2", lnc: int | None = None) -> list[Program]:
    """The programs of a kernel, one per core; broken rules are an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracers = trace_only(Launch(kernel, lnc), arguments, {}, load_target(target), Options(), collect=False)
    return [tracer.program for tracer in tracers]


def array() -> np.ndarray:
    """One tile of float32."""
    return np.arange(128 * 64, dtype=np.float32).reshape(TILE)


def scaled_sum(a: Any, b: Any) -> Any:
    """Loads two tiles, computes half of one plus the other, stores it."""
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf, name="x")
    y = nl.ndarray(b.shape, b.dtype, buffer=nl.sbuf, name="y")
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=y, src=b)
    nisa.tensor_scalar(dst=x[0:128, 0:32], data=x[0:128, 0:32], op0=nl.multiply, operand0=0.5)
    nisa.tensor_tensor(dst=y, data1=x, data2=y, op=nl.add)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name="out")
    nisa.dma_copy(dst=out, src=y)
    return out


def looped(a: Any) -> Any:
    """Nested device loops with constant and register bounds, a while loop, a tensor that lives in a loop."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name="out")
    sink = current_sink("the test")
    count, condition = sink.register(), sink.register()

    def inner(index: Any) -> None:
        tile = nl.ndarray((128, 16), a.dtype, buffer=nl.sbuf, name="tile")
        nisa.dma_copy(dst=tile, src=a[:, 0:16])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[:, 16:32], src=tile)

    def outer(index: Any) -> None:
        sink.for_loop(index, count, 1, inner)
        nisa.dma_copy(dst=out[:, 0:16], src=a[:, 0:16])

    def body(register: Any) -> Any:
        nisa.dma_copy(dst=out[:, 0:16], src=a[:, 0:16])
        return register

    sink.for_loop(0, 4, 2, outer)
    sink.while_loop(condition, body)
    nisa.dma_copy(dst=out[:, 32:64], src=a[:, 32:64])
    return out


def dynamic_program() -> Program:
    """`scaled_sum` with views that follow a register, a tensor and a nested index."""
    (program,) = traced(scaled_sum, array(), array())
    copy, other, *rest = program.body.items
    register = traced(looped, array())[0].body.items[1].condition
    index = View(copy.arguments.dst.buffer, copy.arguments.dst.dtype, (1, 1), (64, 1), 3)
    by_register = copy.arguments.src._replace(dynamic=ScalarOffset(register, 128))
    nested = copy.arguments.dst._replace(dynamic=VectorOffset(index._replace(dynamic=ScalarOffset(index, 1)), -2))
    program.body.items = [
        copy._replace(arguments=copy.arguments._replace(src=by_register, dst=nested)),
        other._replace(arguments=other.arguments._replace(src=by_register)),
        *rest,
    ]
    return program
