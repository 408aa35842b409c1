"""Traced programs on their way between processes: the same program arrives, and nothing that no trace makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.compiler import CompileConfig
from nki.core.errors import ArtifactError
from nki.core.tensor import Buffer, MemoryRegion, whole
from nki.driver.gate import compile_kernel
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.spec.program import Program
from nki.store.traced import pack_traced, read_traced
from nki.target.load import load_target

TRN2 = load_target("trn2")
OPTIONS = Options(target="trn2")


def increased(x: Any, turns: int = 3) -> Any:
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for _ in nl.dynamic_range(0, turns):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


def traced(lnc: int | None = None, turns: int = 3) -> list[Program]:
    x = np.zeros((64, 32), np.float32)
    return [t.program for t in trace_only(Launch(increased, lnc=lnc), (x, turns), {}, TRN2, OPTIONS)]


@pytest.mark.parametrize("lnc", [None, 2])
def test_the_program_that_arrives_compiles_to_the_same_kernel(lnc: int | None) -> None:
    programs = traced(lnc)
    found = read_traced(pack_traced(programs), TRN2)
    hashes = [compile_kernel(each, TRN2, OPTIONS, CompileConfig()).kernel_hash for each in (programs, found)]
    assert hashes[0] == hashes[1]
    assert all(program.placement is None and program.body.sync is None for program in found)


def with_input(program: Program, change: Callable[[Buffer], Buffer]) -> Program:
    """The program with another buffer for its argument, which nothing reads."""
    return replace(program, inputs=[change(program.inputs[0])], body=replace(program.body, items=[]), outputs=[])


def with_constant(program: Program) -> Program:
    """Its last tile has its numbers from the start."""
    *others, tile = program.body.buffers
    filled = replace(tile, role="constant", data=bytes(tile.nbytes))
    return replace(program, body=replace(program.body, buffers=[*others, filled], items=[]))


def with_result_on_chip(program: Program) -> Program:
    tile = next(buffer for buffer in program.body.buffers if buffer.on_chip)
    return replace(program, outputs=[whole(tile)])


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (lambda p: with_input(p, lambda b: replace(b, region=MemoryRegion.sbuf)), "argument x is input in sbuf"),
        (lambda p: with_input(p, lambda b: replace(b, role="fixed")), "argument x is fixed"),
        (with_constant, "is constant in sbuf"),
        (with_result_on_chip, "result sbuf"),
        (lambda p: replace(p, target="trn1"), "for trn1"),
    ],
)
def test_what_no_trace_makes_is_refused(forge: Callable[[Program], Program], problem: str) -> None:
    data = pack_traced([forge(traced()[0])])
    with pytest.raises(ArtifactError, match=problem):
        read_traced(data, TRN2)


def test_damaged_bytes_are_refused() -> None:
    data = pack_traced(traced())
    for at in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        try:
            found = read_traced(bytes(damaged), TRN2)
        except Exception as problem:  # noqa: BLE001 - every kind is looked at
            assert isinstance(problem, ArtifactError | ValueError), (at, problem)
        else:
            assert pack_traced(found) == bytes(damaged)
