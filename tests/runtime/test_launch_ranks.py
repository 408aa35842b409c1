"""Collectives among several ranks: against NumPy, eager and compiled, and what goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import collectives as ncc
from nki.driver import gate, prepare
from nki.runtime import run_ranks
from tests.runtime.several_ranks import CROSSED, FOUR, LISTS, everywhere, gathered_in_a_ring, hbm, sources


def list_of(rank: int, lists: Sequence[Sequence[int]]) -> Sequence[int]:
    return next(ranks for ranks in lists if rank in ranks)


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    ("op", "reference"),
    [(nl.add, np.add), (nl.maximum, np.maximum), (nl.minimum, np.minimum)],
    ids=["add", "max", "min"],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_all_reduce(name: str, op: Any, reference: Any, dtype: Any) -> None:
    def kernel(a: Any, lists: Any) -> Any:
        result = hbm(a.shape, a.dtype)
        ncc.all_reduce([a], [result], ncc.ReplicaGroup(lists), op)
        return result

    given = sources(4, (6, 5), dtype)
    results = everywhere(kernel, [(a, LISTS[name]) for a in given])
    wide = np.int64 if dtype is np.int32 else np.float32
    for rank, result in enumerate(results):
        expected = reference.reduce([given[member].astype(wide) for member in list_of(rank, LISTS[name])])
        np.testing.assert_array_equal(result, expected.astype(dtype))


@pytest.mark.parametrize("name", LISTS)
def test_all_gather(name: str) -> None:
    def kernel(a: Any, lists: Any) -> Any:
        result = hbm((len(lists[0]) * a.shape[0], a.shape[1]))
        ncc.all_gather([a], [result], ncc.ReplicaGroup(lists), 0)
        return result

    given = sources(4, (3, 5))
    for rank, result in enumerate(everywhere(kernel, [(a, LISTS[name]) for a in given])):
        np.testing.assert_array_equal(result, np.concatenate([given[m] for m in list_of(rank, LISTS[name])]))


def test_all_gather_in_sbuf_along_the_free_dimension() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        wide = nl.ndarray((a.shape[0], 4 * a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        ncc.all_gather([tile], [wide], FOUR, 1)
        result = hbm(wide.shape)
        nisa.dma_copy(dst=result, src=wide)
        return result

    given = sources(4, (8, 6))
    for result in everywhere(kernel, [(a,) for a in given]):
        np.testing.assert_array_equal(result, np.concatenate(given, axis=1))


def test_reduce_scatter_and_several_tensors() -> None:
    def kernel(a: Any, b: Any) -> Any:
        first, second = hbm((2, 5)), hbm((1, 3))
        ncc.reduce_scatter([a, b], [first, second], FOUR, 0, nl.add)
        return first, second

    a, b = sources(4, (8, 5)), sources(4, (4, 3))
    made = nki.jit(kernel)
    for run in (made, nki.simulate(made)):
        for rank, (first, second) in enumerate(run_ranks(run, list(zip(a, b, strict=True)))):
            np.testing.assert_array_equal(first, np.add.reduce(a)[2 * rank : 2 * rank + 2])
            np.testing.assert_array_equal(second, np.add.reduce(b)[rank : rank + 1])


def test_all_to_all() -> None:
    def kernel(a: Any) -> Any:
        result = hbm(a.shape)
        ncc.all_to_all([a], [result], CROSSED, 0)
        return result

    given = sources(4, (4, 5))
    for rank, result in enumerate(everywhere(kernel, [(a,) for a in given])):
        members = list_of(rank, LISTS["crossed"])
        place = members.index(rank)
        np.testing.assert_array_equal(result, np.concatenate([given[m][2 * place : 2 * place + 2] for m in members]))


def test_collective_permute_leaves_who_gets_nothing_alone() -> None:
    def kernel(a: Any, b: Any) -> Any:
        ncc.collective_permute([a], [b], [(0, 2), (2, 1), (3, 3)])
        return b

    given, old = sources(4, (4, 5)), [np.full((4, 5), -1.0, np.float32) for _ in range(4)]
    results = everywhere(kernel, list(zip(given, old, strict=True)))
    for result, expected in zip(results, [old[0], given[2], given[0], given[3]], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_ring_knows_whose_data_it_works_on() -> None:
    given = sources(4, (1, 5))
    for result in everywhere(gathered_in_a_ring, [(a,) for a in given]):
        np.testing.assert_array_equal(result, np.concatenate(given))


def test_a_ring_reduces_on_the_way() -> None:
    def kernel(a: Any) -> Any:
        partial = a
        for _ in range(3):
            following = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
            ncc.collective_permute_implicit_reduce([[partial]], [[a]], [[following]], FOUR, nl.maximum)
            partial = following
        result = hbm(a.shape)
        nisa.dma_copy(dst=result, src=partial)
        return result

    given = sources(4, (4, 5))
    for rank, result in enumerate(everywhere(kernel, [(a,) for a in given])):
        behind = [given[(rank - step) % 4] for step in (1, 2, 3)]
        np.testing.assert_array_equal(result, np.maximum.reduce(behind))


def test_rank_id() -> None:
    def kernel(a: Any) -> Any:
        result = hbm((1, a.shape[1]))
        row = a.ap([[a.shape[1], 1], [1, a.shape[1]]], scalar_offset=ncc.rank_id(), indirect_dim=0)
        nisa.dma_copy(dst=result, src=row)
        return result

    (table,) = sources(1, (3, 5))
    for rank, result in enumerate(everywhere(kernel, [(table,)] * 3)):
        np.testing.assert_array_equal(result, table[rank : rank + 1])


def chunks(ranks: int, size: int, seed: int, single: bool) -> list[np.ndarray]:
    """Tables of counts and offsets inside `size` elements."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, size // ranks + 1, (ranks, ranks))
    if single:
        counts[:, 1:] = 99
    offsets = random.integers(0, size - size // ranks, (ranks, ranks))
    return [np.stack([c, o, np.full(ranks, 77)]).astype(np.uint32) for c, o in zip(counts, offsets, strict=True)]


@pytest.mark.parametrize("split", [False, True], ids=["at once", "prepared"])
@pytest.mark.parametrize("name", ["all_to_all_v", "all_gather_v"])
def test_chunks_whose_sizes_are_known_while_running(name: str, split: bool) -> None:
    def kernel(a: Any, table: Any, b: Any) -> Any:
        operands = ([a], [b], FOUR, table)
        if split:
            getattr(ncc, f"{name}_trigger")(getattr(ncc, f"{name}_prepare")(*operands))
        else:
            getattr(ncc, name)(*operands)
        return b, table

    given, tables = sources(4, (5, 8)), chunks(4, 40, 3, name == "all_gather_v")
    made = nki.jit(kernel)
    for run in (made, nki.simulate(made)):
        arguments = [(a, table.copy(), np.zeros((5, 8), np.float32)) for a, table in zip(given, tables, strict=True)]
        for rank, (got, table) in enumerate(run_ranks(run, arguments)):
            expected, column = np.zeros(40, np.float32), 0 if name == "all_gather_v" else rank
            for sender in range(4):
                count, offset = (int(n) for n in tables[sender][:2, column])
                expected[10 * sender :][:count] = given[sender].reshape(-1)[offset : offset + count]
            np.testing.assert_array_equal(got.reshape(-1), expected)
            np.testing.assert_array_equal(table[2], [int(t[0, column]) for t in tables])


def test_receivers_may_say_where_chunks_go() -> None:
    def kernel(a: Any, table: Any, b: Any) -> Any:
        ncc.all_to_all_v([a], [b], ncc.ReplicaGroup([[0, 1]]), table, recv_counts_known=True, has_rdispls=True)
        return b

    given = sources(2, (2, 6))
    tables = [
        np.array([[2, 3], [4, 1], [9, 9], [7, 1]], np.uint32),
        np.array([[1, 5], [0, 6], [9, 9], [0, 6]], np.uint32),
    ]
    blank = np.zeros((2, 6), np.float32)
    first, second = everywhere(kernel, [(a, t, blank) for a, t in zip(given, tables, strict=True)])
    flat = [a.reshape(-1) for a in given]
    expected = np.zeros((2, 12), np.float32)
    expected[0, 7:9], expected[0, 1:2] = flat[0][4:6], flat[1][0:1]
    expected[1, 0:3], expected[1, 6:11] = flat[0][1:4], flat[1][6:11]
    np.testing.assert_array_equal(np.stack([first, second]).reshape(2, 12), expected)


def test_two_cores_of_a_rank_meet_those_of_the_others() -> None:
    def kernel(a: Any) -> Any:
        half = a.shape[0] // 2
        mine = nl.ds(nl.program_id(0) * half, half)
        result = hbm(a.shape)
        tile = nl.ndarray((half, a.shape[1]), a.dtype, buffer=nl.sbuf)
        total = nl.ndarray((half, a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[mine])
        ncc.all_reduce([tile], [total], ncc.ReplicaGroup([[0, 1, 2]]), nl.add)
        nisa.dma_copy(dst=result[mine], src=total)
        return result

    given = sources(3, (8, 5))
    for result in everywhere(kernel, [(a,) for a in given], lnc=2):
        np.testing.assert_array_equal(result, np.add.reduce(given))


def test_a_collective_in_a_device_loop() -> None:
    def kernel(a: Any) -> Any:
        total = hbm(a.shape)
        nisa.dma_copy(dst=total, src=a)

        def body(_: Any) -> None:
            summed = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
            ncc.all_reduce([total], [summed], ncc.ReplicaGroup([[0, 1]]), nl.add)
            nisa.dma_copy(dst=total, src=summed)

        nl.fori_loop(0, 3, body)
        return total

    given = sources(2, (4, 5))
    for result in everywhere(kernel, [(a,) for a in given]):
        np.testing.assert_array_equal(result, (given[0] + given[1]) * 4)


def test_keywords_are_those_of_each_rank() -> None:
    def kernel(a: Any, scale: float) -> Any:
        result = hbm(a.shape)
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
        nisa.dma_copy(dst=result, src=tile)
        return result

    given = sources(2, (4, 5))
    first, second = run_ranks(kernel, [(a,) for a in given], [{"scale": 2.0}, {"scale": 4.0}])
    np.testing.assert_array_equal(first, given[0] * 2)
    np.testing.assert_array_equal(second, given[1] * 4)


def test_a_kernel_is_compiled_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(a: Any) -> Any:
        result = hbm(a.shape)
        ncc.all_reduce([a], [result], FOUR, nl.add)
        return result

    compiled: list[Any] = []
    compile_kernel = gate.compile_kernel

    def slowly(*args: Any) -> Any:
        compiled.append(args)
        time.sleep(0.05)  # so that all other ranks come to it
        return compile_kernel(*args)

    monkeypatch.setattr(gate, "compile_kernel", slowly)
    run_ranks(nki.jit(kernel), [(a,) for a in sources(4, (4, 5))])
    assert len(compiled) == 1


def test_the_source_is_checked_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only for time: Python 3.11 fails where several threads make syntax trees at once."""
    checked: list[Any] = []
    check = prepare.checked

    def slowly(*args: Any) -> Any:
        checked.append(args)
        time.sleep(0.05)
        return check(*args)

    monkeypatch.setattr(prepare, "checked", slowly)
    run_ranks(nki.jit(gathered_in_a_ring), [(a,) for a in sources(4, (4, 5))])
    assert len(checked) == 1


def test_ranks_run_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def kernel(a: Any) -> Any:
        both.wait(60)
        return a

    given = sources(2, (4, 5))
    for result, a in zip(run_ranks(nki.simulate(kernel), [(a,) for a in given]), given, strict=True):
        np.testing.assert_array_equal(result, a)


def test_ranks_run_one_at_a_time_in_a_fixed_order(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(a: Any, rank: int) -> Any:
        result = hbm(a.shape)
        print("before", rank)
        ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1, 2]]), nl.add)
        print("after", rank)
        return result

    given = [(a, rank) for rank, a in enumerate(sources(3, (4, 5)))]
    run_ranks(nki.simulate(kernel), given, parallel=False)
    order = [tuple(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert order[:3] == [("before", str(rank)) for rank in range(3)]
    assert sorted(order[3:]) == [("after", str(rank)) for rank in range(3)]
