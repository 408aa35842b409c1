"""Kernels that exchange between ranks, against what the exchange means, written in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
from nki.collectives import ReplicaGroup
from nki.runtime import run_ranks
from nkilib.catalogue import kernel, reference
from nkilib.errors import KernelLimit
from nkilib.experimental import collectives as kernels
from nkilib.experimental.collectives import fgcc, ring

RNG = np.random.default_rng(0)


def integers(*shape: int) -> np.ndarray:
    """Small integers, whose sums and products are exact."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def launched(called, inputs, *rest, cores: int = 1) -> list[np.ndarray]:
    return run_ranks(called[cores], [(*each, *rest) if isinstance(each, tuple) else (each, *rest) for each in inputs])


def same(name: str, inputs, *rest, cores: int = 1) -> list[np.ndarray]:
    """Results of all ranks, which are those of the reference."""
    made = launched(kernel(name), inputs, *rest, cores=cores)
    tensors = zip(*(each if isinstance(each, tuple) else (each,) for each in inputs), strict=True)
    wanted = reference(name)(*map(list, tensors), *rest)
    assert all(np.array_equal(a.reshape(b.shape), b) for a, b in zip(made, wanted, strict=True))
    return made


@pytest.mark.parametrize("rows", [2, 6])
def test_collectives_in_hbm(rows: int) -> None:
    inputs, group = [integers(rows, 3) for _ in range(2)], ReplicaGroup([[0, 1]])
    same("all_reduce_hbm_kernel", inputs, group)
    same("all_gather_hbm_kernel", inputs, group, 2)
    same("reduce_scatter_hbm_kernel", inputs, group, 2)
    same("all_to_all_hbm_kernel", inputs, group)


def test_a_rank_finds_its_own_row() -> None:
    rows, table = integers(3, 5), np.array([[2], [0], [1]], np.int32)
    same("rank_id_kernel", [rows] * 3)
    made = same("dma_copy_rank_id_kernel", [(rows, table)] * 3)
    assert np.array_equal(np.concatenate(made), rows[[2, 0, 1]])


@settings(max_examples=4, deadline=None)
@given(rows=st.sampled_from([1, 127, 129, 513]), columns=st.sampled_from([1, 5, 513]), cores=st.sampled_from([1, 2]))
def test_columns_are_gathered(rows: int, columns: int, cores: int) -> None:
    same("allgather_sb2sb_tiled", [integers(rows, columns) for _ in range(2)], ReplicaGroup([[0, 1]]), 2, cores=cores)


def test_columns_of_one_tile_are_gathered() -> None:
    same("allgather_sb2sb", [integers(128, 9) for _ in range(3)], ReplicaGroup([[0, 1, 2]]), 3)


@pytest.mark.parametrize(("rows", "cores", "hbm"), [(262, 1, False), (6, 1, True), (8, 2, False), (8, 2, True)])
def test_a_ring_gathers_rows(rows: int, cores: int, hbm: bool) -> None:
    made = same("fine_grained_allgather", [integers(rows, 7) for _ in range(4)], 4, 1, hbm, cores=cores)
    assert made[0].shape == ((4, 1, 1, rows, 7) if cores == 1 else (4, 2, 2, rows // 4, 7))


def test_two_rings_do_not_mix() -> None:
    made = same("fine_grained_allgather", [integers(3, 2) for _ in range(4)], 2, 2)
    assert not np.array_equal(made[0], made[2])


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "cores", "hbm"),
    [
        (5, 128, 3, 1, False),
        (129, 256, 513, 1, False),
        (5, 127, 3, 1, False),
        (8, 128, 3, 2, True),
        (8, 128, 3, 2, False),
    ],
)
def test_a_ring_multiplies(rows: int, inner: int, columns: int, cores: int, hbm: bool) -> None:
    ranks = 4 if cores == 2 else 2
    inputs = [(integers(rows, inner), integers(inner, columns)) for _ in range(ranks)]
    same("allgather_compute_matmul", inputs, ranks, 1, hbm, cores=cores)


def test_what_is_exchanged_in_sbuf_is_not_loaded_again() -> None:
    """That saves time where what is exchanged is large; small exchanges take their latency from either memory."""
    a, b = nki.ShapeDtype((512, 1024), nki.language.bfloat16), nki.ShapeDtype((1024, 512), nki.language.bfloat16)
    on_chip, in_hbm = (nki.predict(kernels.allgather_compute_matmul)(a, b, 4, 1, hbm) for hbm in (False, True))
    assert on_chip.dma_bytes < in_hbm.dma_bytes and on_chip.ns < in_hbm.ns


ONE = ReplicaGroup([[0]])


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


REFUSED = [
    ("nkilib.shape", "H is 129", kernels.allgather_sb2sb, (zeros(129, 2), ONE, 1)),
    ("nkilib.shape", "tp_degree is 0", kernels.allgather_sb2sb_tiled, (zeros(2, 2), ONE, 0)),
    ("nkilib.argument", "tp_degree is 3", kernels.fine_grained_allgather, (zeros(2, 2), 3, 1)),
    ("nkilib.shape", "rows of lhs is 6", kernels.fine_grained_allgather[2], (zeros(6, 2), 4, 1)),
    ("nkilib.shape", "rows of input is 3", kernels.reduce_scatter_hbm_kernel, (zeros(3, 2), ONE, 2)),
    ("nkilib.shape", "dimension 0 of rhs is 5", kernels.allgather_compute_matmul, (zeros(2, 4), zeros(5, 2), 2, 1)),
    (
        "nkilib.dtype",
        "lhs is int32",
        kernels.allgather_compute_matmul,
        (zeros(2, 4).astype(np.int32), zeros(4, 2), 2, 1),
    ),
    ("nkilib.dtype", "rank_id_lookup is float32", kernels.dma_copy_rank_id_kernel, (zeros(1, 2), zeros(1, 1))),
]


@pytest.mark.parametrize(("code", "words", "called", "arguments"), REFUSED, ids=[words for _, words, _, _ in REFUSED])
def test_what_is_refused(code: str, words: str, called, arguments) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(called)(*arguments)
    assert caught.value.code == code


def test_how_ranks_are_grouped() -> None:
    assert ring.group_of(2, 2) == ReplicaGroup([[0, 1], [2, 3]])
    assert not fgcc._fits(1 << 20, 128, 1, 1, nki.language.float32)
