"""Sums in PSUM start with their first product where a fill with zeros says no more; everything else stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.passes import accumulate_flags, zero_fills
from tests.passes.kernels import passed, results

A = np.random.default_rng(5).standard_normal((8, 8)).astype(np.float32)


def kernel_of(use: Callable[[Any, Any, Callable[[], Any]], Any], **where: Any) -> Callable[[Any], Any]:
    """A kernel with a sum in PSUM; `use` gets it, a loaded tile, and a function that adds a product."""

    def kernel(a: Any) -> Any:
        tile, other = (nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf) for _ in "ab")
        nisa.dma_copy(dst=tile, src=a)
        total = nl.ndarray((8, 8), nl.float32, buffer=nl.psum, **where)
        use(total, tile, lambda: nisa.nc_matmul(total, tile, tile))
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.tensor_copy(other, total)
        nisa.dma_copy(dst=out, src=other)
        return out

    return kernel


def filled(total: Any, tile: Any, add: Any) -> None:
    nisa.memset(dst=total, value=0.0)
    add()
    add()


def in_trips(total: Any, tile: Any, add: Any) -> None:
    """Every trip of a loop on the device begins a sum."""

    def trip(i: Any) -> None:
        filled(total, tile, add)

    nl.fori_loop(0, 3, trip)


def before_a_loop(total: Any, tile: Any, add: Any) -> None:
    """The first product is in a loop, each of whose trips adds."""
    nisa.memset(dst=total, value=0.0)
    nl.fori_loop(0, 3, lambda i: add())


def transposed(total: Any, tile: Any, add: Any) -> None:
    """A transpose overwrites, and its result is what another product is added to."""
    nisa.memset(dst=total, value=0.0)
    nisa.nc_transpose(dst=total, data=tile, engine=nisa.engine.tensor)


def ordered(total: Any, tile: Any, add: Any) -> None:
    with nl.no_reorder():
        filled(total, tile, add)


@pytest.mark.parametrize(
    ("use", "where", "fills"),
    [
        (filled, {}, 0),
        (in_trips, {}, 0),
        (before_a_loop, {}, 1),
        (transposed, {}, 1),
        (ordered, {}, 1),
        (filled, {"address": (0, 0)}, 1),
    ],
)
def test_fills_go_where_a_product_starts_the_sum(use: Any, where: dict[str, Any], fills: int) -> None:
    before, after = passed(kernel_of(use, **where), [A], zero_fills.PASS, accumulate_flags.PASS)
    assert sum(issued.instruction.name == "memset" for issued in before.body.walk()) == 1
    assert sum(issued.instruction.name == "memset" for issued in after.body.walk()) == fills
    assert results(after, [A]) == results(before, [A])
