"""Matmuls that leave it open whether they add are told so where the program alone says it, and sums stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.passes import accumulate_flags
from tests.passes.kernels import passed, results

A = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
WHOLE, LEFT, RIGHT, MIDDLE = slice(0, 8), slice(0, 4), slice(4, 8), slice(2, 6)


def kernel_of(use: Callable[[Any, Callable[..., Any], Any], Any]) -> Callable[[Any], Any]:
    """A kernel with a sum in PSUM; `use` gets it, a function that multiplies into a part of it, and a loaded tile."""

    def kernel(a: Any) -> Any:
        tile, other = (nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf) for _ in "ab")
        nisa.dma_copy(dst=tile, src=a)
        total = nl.ndarray((8, 8), nl.float32, buffer=nl.psum)

        def add(part: slice = WHOLE, mode: bool | None = None, dst: Any = None, **more: Any) -> Any:
            dst = total[:, part] if dst is None else dst
            return nisa.nc_matmul(dst, tile, tile[:, part], accumulate=mode, **more)

        use(total, add, tile)
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.tensor_copy(other, total)
        nisa.dma_copy(dst=out, src=other)
        return out

    return kernel


def parts(*steps: tuple[slice, bool | None]) -> Callable[[Any, Any, Any], None]:
    def use(total: Any, add: Any, tile: Any) -> None:
        for part, mode in steps:
            add(part, mode)

    return use


def by_another_engine(total: Any, add: Any, tile: Any) -> None:
    nisa.tensor_copy(total, tile)
    add()


def in_a_loop(total: Any, add: Any, tile: Any) -> None:
    nl.fori_loop(0, 3, lambda i: add())


def after_a_loop(total: Any, add: Any, tile: Any) -> None:
    add()
    nl.fori_loop(0, 3, lambda i: add())
    add()


def of_the_body(total: Any, add: Any, tile: Any) -> None:
    def body(i: Any) -> None:
        own = nl.ndarray((8, 8), nl.float32, buffer=nl.psum)
        add(dst=own)
        add(dst=own)
        nisa.tensor_tensor(tile, tile, own, nl.minimum)

    nl.fori_loop(0, 3, body)
    add()


def at_a_register(total: Any, add: Any, tile: Any) -> None:
    number = nisa.register_alloc(4)
    nisa.memset(tile[:, 0:1], 1.0)
    add(WHOLE, False)
    window = total.ap([[8, 8], [1, 4]], scalar_offset=number, indirect_dim=1)
    add(LEFT, dst=window)
    add(RIGHT)


def transposed(total: Any, add: Any, tile: Any) -> None:
    nisa.nc_matmul(total, tile, tile, is_transpose=True)


CASES: dict[str, tuple[Callable[[Any, Any, Any], None], list[bool | None]]] = {
    "the same place": (parts((WHOLE, None), (WHOLE, None), (WHOLE, None)), [False, True, True]),
    "what is written stays": (parts((WHOLE, False), (WHOLE, True), (WHOLE, None)), [False, True, True]),
    "starting anew": (parts((WHOLE, None), (WHOLE, False), (WHOLE, None)), [False, False, True]),
    "halves": (parts((LEFT, None), (RIGHT, None), (LEFT, None)), [False, False, True]),
    "halves, then the whole": (parts((LEFT, None), (RIGHT, None), (WHOLE, None)), [False, False, None]),
    "partly on top": (parts((LEFT, None), (MIDDLE, None), (RIGHT, None)), [False, None, None]),
    "the whole, then a half": (parts((WHOLE, None), (LEFT, None)), [False, None]),
    "written by another engine": (by_another_engine, [None]),
    "a loop": (in_a_loop, [None]),
    "behind a loop": (after_a_loop, [False, None, None]),
    "a sum of the body": (of_the_body, [False, True, False]),
    "at a register": (at_a_register, [False, None, None]),
    "a transpose": (transposed, [None]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_flags(name: str) -> None:
    use, wanted = CASES[name]
    before, after = passed(kernel_of(use), [A], accumulate_flags.PASS)
    flags = [i.arguments.accumulate for i in after.body.walk() if i.instruction.name == "nc_matmul"]
    assert flags == wanted
    assert results(before, [A]) == results(after, [A])
    others = [i for i in before.body.walk() if i.instruction.name != "nc_matmul"]
    assert others == [i for i in after.body.walk() if i.instruction.name != "nc_matmul"]
