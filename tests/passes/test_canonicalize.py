"""What does nothing is taken out, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.passes import canonicalize
from tests.passes.kernels import passed, results, shape
from tests.support import environment

A = np.arange(64, dtype=np.float32).reshape(8, 8)


def around(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A kernel that loads a tile, does something with it and stores it."""

    def kernel(a: Any) -> Any:
        tile = nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        change(tile)
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


def increment(tile: Any) -> Any:
    return nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)


ADDED = "tensor_scalar"
NOTHING: dict[str, Callable[[Any], Any]] = {
    "tensor_copy onto itself": lambda t: nisa.tensor_copy(t, t),
    "dma_copy of a part onto itself": lambda t: nisa.dma_copy(dst=t[:, 2:4], src=t[:, 2:4]),
    "no trip": lambda t: nl.fori_loop(3, 3, lambda i: increment(t)),
    "bounds that go down": lambda t: nl.fori_loop(4, 2, lambda i: increment(t)),
    "an empty body": lambda t: nl.fori_loop(0, 4, lambda i: None),
    "an empty loop in a loop": lambda t: nl.fori_loop(0, 4, lambda i: nl.fori_loop(0, 0, lambda j: increment(t))),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_goes(name: str) -> None:
    before, after = passed(around(NOTHING[name]), [A], canonicalize.PASS)
    assert [i for i in shape(after.body) if isinstance(i, str)] == ["dma_copy", "dma_copy"]
    assert results(before, [A]) == results(after, [A])


SOMETHING: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "another part": (lambda t: nisa.tensor_copy(t[:, 0:2], t[:, 2:4]), ["tensor_copy"]),
    "in another order": (lambda t: nisa.dma_copy(dst=t, src=t.ap([[8, 8], [-1, 8]], offset=7)), ["dma_copy"]),
    "a trip": (lambda t: nl.fori_loop(0, 1, lambda i: increment(t)), [[(0, 1, 1), ADDED]]),
    "an instruction": (increment, [ADDED]),
}  # fmt: skip


@pytest.mark.parametrize("name", SOMETHING)
def test_something_stays(name: str) -> None:
    change, wanted = SOMETHING[name]
    before, after = passed(around(change), [A], canonicalize.PASS)
    assert shape(after.body) == ["dma_copy", *wanted, "dma_copy"]
    assert after is before


def test_edges_and_ordered_regions_move_along() -> None:
    """A copy onto itself stands before, and one within, what the kernel orders."""

    def change(tile: Any) -> None:
        nisa.tensor_copy(tile, tile)
        first = increment(tile)
        increment(tile).depends_on(first)
        with nl.no_reorder():
            increment(tile)
            nisa.tensor_copy(tile, tile)
            increment(tile)

    before, after = passed(around(change), [A], canonicalize.PASS)
    assert (before.edges, before.fences) == ([(2, 3)], [(4, 7)])
    assert (after.edges, after.fences) == ([(1, 2)], [(3, 5)])
    assert results(before, [A]) == results(after, [A])


def test_the_program_that_came_in_does_not_change() -> None:
    before, after = passed(around(NOTHING["no trip"]), [A], canonicalize.PASS)
    assert len(before.body.items) == 3 and len(after.body.items) == 2


def test_tensors_that_nobody_uses_go_and_explicit_addresses_stay() -> None:
    def change(tile: Any) -> None:
        nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf, name="spare")
        nl.ndarray((8, 8), nl.float32, buffer=nl.psum, name="spare_sum")

        def body(i: Any) -> None:
            nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf, name="inner")
            increment(tile)

        nl.fori_loop(0, 2, body)

    before, after = passed(around(change), [A], canonicalize.PASS)
    assert {"spare", "spare_sum", "inner"} <= {buffer.name for buffer in before.body.all_buffers()}
    assert len(list(after.body.all_buffers())) == 2
    assert results(before, [A]) == results(after, [A])


def test_a_kernel_with_an_unused_tensor_is_kept_on_disk(tmp_path: Path) -> None:
    def kernel(a: Any) -> Any:
        nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
        return around(lambda tile: None)(a)

    with environment(NKI_CACHE="1", NKI_CACHE_DIR=str(tmp_path / "cache")):
        assert nki.jit(kernel)(A).tobytes() == A.tobytes()
