"""With the setting on, what nobody reads is not computed; everything that somebody can see is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.compiler import CompileConfig
from nki.passes import dead_code
from tests.passes.kernels import passed, results, shape

A = np.arange(64, dtype=np.float32).reshape(8, 8)
ON = CompileConfig(dead_code_elim=True)
ENDS = ["dma_copy", "dma_copy"]


def tile(**place: Any) -> Any:
    return nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf, **place)


def around(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A kernel that loads a tile, does something and stores it; `change` gets the input as well."""

    def kernel(a: Any) -> Any:
        t = tile()
        nisa.dma_copy(dst=t, src=a)
        change(t, a)
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    return kernel


def chain(t: Any, a: Any) -> None:
    """Three tiles, each computed from the one before; nobody reads the last one."""
    for _ in range(3):
        following = tile()
        nisa.tensor_scalar(following, t, nl.add, 1.0)
        t = following


def running_sum(t: Any, a: Any) -> None:
    total = tile()
    nisa.memset(total, 0.0)
    nl.fori_loop(0, 3, lambda i: nisa.tensor_tensor(total, total, t, nl.add))


def register(t: Any, a: Any) -> None:
    number = nisa.register_alloc(1)
    nisa.register_move(number, 2)


def random_bits(t: Any, a: Any) -> None:
    bits = nl.ndarray((8, 8), nl.uint32, buffer=nl.sbuf)
    nisa.rng(bits)


def on_top(t: Any, a: Any) -> None:
    """What is written through one tensor is read through another at the same address."""
    one, other = tile(address=(0, 1024)), tile(address=(0, 1024))
    nisa.tensor_copy(one, t)
    nisa.tensor_scalar(one, one, nl.add, 5.0)
    nisa.tensor_copy(t, other)


GO = {"a chain": chain, "what only feeds itself": running_sum, "registers": register}
STAY: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "written to an input": (lambda t, a: nisa.dma_copy(dst=a[0:4], src=t[4:8]), ["dma_copy"]),
    "an effect": (random_bits, ["rng"]),
    "another tensor at the same address": (on_top, ["tensor_copy", "tensor_scalar", "tensor_copy"]),
    "a loop's bound": (
        lambda t, a: nl.fori_loop(0, nisa.register_alloc(2), lambda i: nisa.tensor_scalar(t, t, nl.add, 1.0)),
        ["register_move", [(0, None, 1), "tensor_scalar"]],
    ),
    "an address": (
        lambda t, a: nisa.dma_copy(dst=t[0:1], src=a.select(0, nisa.register_alloc(3)).reshape((1, 8))),
        ["register_move", "dma_copy"],
    ),
    "used in a loop": (lambda t, a: nl.fori_loop(0, 2, lambda i: nisa.tensor_copy(t[:, 0:2], t[:, 4:6])),
                       [[(0, 2, 1), "tensor_copy"]]),
}  # fmt: skip


@pytest.mark.parametrize("name", GO)
def test_what_nobody_reads_goes(name: str) -> None:
    before, after = passed(around(GO[name]), [A], dead_code.PASS, config=ON)
    assert [i for i in shape(after.body) if isinstance(i, str)] == ENDS
    assert [i for i in after.body.walk()] == [before.body.items[0], before.body.items[-1]]
    assert results(before, [A]) == results(after, [A])


@pytest.mark.parametrize("name", STAY)
def test_what_somebody_sees_stays(name: str) -> None:
    change, wanted = STAY[name]
    before, after = passed(around(change), [A], dead_code.PASS, config=ON)
    inner = [
        [(0, None, 1), *i[1:]] if isinstance(i, list) and not isinstance(i[0][1], int) else i for i in shape(after.body)
    ]
    assert inner == [ENDS[0], *wanted, ENDS[1]]
    assert results(before, [A]) == results(after, [A])


def test_what_only_the_other_core_reads_stays() -> None:
    def kernel(a: Any) -> Any:
        me = nl.program_id(0)
        both, out = (nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm) for _ in "ab")
        t = tile()
        if me == 0:
            nisa.dma_copy(dst=both, src=a)
        nisa.barrier()
        if me == 1:
            nisa.dma_copy(dst=t, src=both)
            nisa.dma_copy(dst=out, src=t)
        return out

    _, after = passed(kernel, [A], dead_code.PASS, config=ON, lnc=2)
    assert shape(after.body) == ["dma_copy", "barrier"]


def test_edges_to_what_goes_are_dropped() -> None:
    def change(t: Any, a: Any) -> None:
        dead = nisa.memset(tile(), 0.0)
        first = nisa.tensor_scalar(t, t, nl.add, 1.0).depends_on(dead)
        nisa.tensor_scalar(t, t, nl.add, 1.0).depends_on(first)

    before, after = passed(around(change), [A], dead_code.PASS, config=ON)
    assert before.edges == [(1, 2), (2, 3)]
    assert after.edges == [(1, 2)]
