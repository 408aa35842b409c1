"""Two cores: barriers and transfers that fit together, and those that do not; printing; versions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.core.errors import DivergenceError
from nki.isa.sync import core_barrier, device_print, sendrecv
from nki.isa.version import get_nc_sub_version, get_nc_version
from tests.isa.examples.sync import rank
from tests.isa.tiles import bits_of, floats, simulate, store
from tests.isa.tiles import dma_load as load
from tests.support import both, environment, rejection

BF16 = ml_dtypes.bfloat16


def result_of_core_0(tile: Any) -> Any:
    """Both cores must return the same tensor; core 0 fills it."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    if rank() == 0:
        nisa.dma_copy(dst=out, src=tile)
    return out


def mine(a: Any, dtype: Any = None) -> Any:
    """Row `rank` of the argument, in SBUF."""
    return load(a[rank() : rank() + 1, :], dtype)


def swap(tile: Any, pipe_id: int = 0) -> Any:
    taken = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
    sendrecv(tile, taken, 1 - rank(), 1 - rank(), pipe_id)
    return taken


TWO = np.arange(12, dtype=np.float32).reshape(2, 6)


def test_a_transfer_takes_the_value_at_the_time_of_the_call() -> None:
    def kernel(a: Any) -> Any:
        tile = mine(a)
        first = swap(tile)
        nisa.memset(dst=tile, value=-1.0)
        both_rows = nl.ndarray((1, 2, 6), a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=both_rows[:, 0, :], src=first)
        nisa.tensor_copy(dst=both_rows[:, 1, :], src=swap(tile, 1))
        return result_of_core_0(both_rows)

    assert both(kernel, TWO, lnc=2).tolist() == [[TWO[1].tolist(), [-1.0] * 6]]


def test_a_transfer_moves_bits() -> None:
    data = np.stack([floats(1, 2, 3), floats(0x7FC01234, 0x7F812345, 0x80000000)])
    result = both(lambda a: result_of_core_0(swap(mine(a))), data, lnc=2)
    assert np.array_equal(bits_of(result[0]), bits_of(data[1]))


@pytest.mark.parametrize("precise", [True, False])
def test_low_precision_keeps_what_it_holds(precise: bool) -> None:
    data = np.float32([[1.001, 1.002], [1.003, 1.004]])

    def kernel(a: Any) -> Any:
        return result_of_core_0(load(store_private(swap(mine(a, BF16))), np.float32))

    def store_private(tile: Any) -> Any:
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    wanted = data[1].astype(BF16).astype(np.float32) if precise else data[1]
    assert np.array_equal(simulate(kernel, data, precise=precise, lnc=2)[0], wanted)


def test_a_core_that_names_itself_copies() -> None:
    def kernel(a: Any) -> Any:
        tile = mine(a)
        taken = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
        sendrecv(tile, taken, rank(), rank(), 0)
        return result_of_core_0(taken)

    assert both(kernel, TWO, lnc=2).tolist() == TWO[:1].tolist()


def one_sided(a: Any) -> Any:
    tile = mine(a)
    taken = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
    if rank() == 0:
        sendrecv(tile, taken, 1, 1, 0)
    return result_of_core_0(tile)


def other_pipe(a: Any) -> Any:
    return result_of_core_0(swap(mine(a), rank()))


def barrier_and_transfer(a: Any) -> Any:
    tile = mine(a)
    out = result_of_core_0(tile)
    if rank() == 0:
        core_barrier(out, (0, 1))
    else:
        swap(tile)
    return out


def both_to_core_1(a: Any) -> Any:
    tile = mine(a)
    taken = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
    sendrecv(tile, taken, send_to_rank=1, recv_from_rank=0, pipe_id=0)
    return result_of_core_0(taken)


def other_shape(a: Any) -> Any:
    tile = mine(a).reshape((1, 2, 3) if rank() else (1, 6))
    swap(tile)
    return result_of_core_0(tile.reshape((1, 6)))


def other_dtype(a: Any) -> Any:
    swap(mine(a, np.float32 if rank() else np.int32))
    return result_of_core_0(mine(a))


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        (one_sided, "cores.deadlock"),
        (other_pipe, "cores.mismatch"),
        (barrier_and_transfer, "cores.mismatch"),
        (both_to_core_1, "cores.route"),
        (other_shape, "cores.contents"),
        (other_dtype, "cores.contents"),
    ],
)
def test_cores_that_do_not_fit_together_are_an_error(kernel: Any, code: str) -> None:
    error = rejection(kernel, TWO, lnc=2)
    assert error.code == code and isinstance(error, DivergenceError)
    assert error.rule and error.fix and error.location.frames


def alone_at_a_barrier(a: Any) -> Any:
    out = store(load(a))
    core_barrier(out, (0, 1))
    return out


def alone_with_a_transfer(a: Any) -> Any:
    tile = load(a)
    sendrecv(tile, tile, 1, 1, 0)
    return store(tile)


@pytest.mark.parametrize("kernel", [alone_at_a_barrier, alone_with_a_transfer])
def test_one_core_cannot_wait_for_another(kernel: Any) -> None:
    assert rejection(kernel, TWO).code == "cores.alone"


@pytest.mark.parametrize("kernel", [alone_at_a_barrier, alone_with_a_transfer])
def test_targets_without_logical_cores_have_neither(kernel: Any) -> None:
    assert rejection(kernel, TWO, target="trn1").code == "instruction.unavailable"


def test_a_barrier_orders_what_both_cores_do_to_shared_memory() -> None:
    """Four rounds in which each core reads what the other wrote in the round before."""

    def kernel(a: Any) -> Any:
        shared = nl.ndarray((2, 6), a.dtype, buffer=nl.shared_hbm)
        tile, me = mine(a), rank()
        for _ in range(4):
            nisa.dma_copy(dst=shared[me : me + 1, :], src=tile)
            core_barrier(shared, (0, 1))
            nisa.dma_copy(dst=tile, src=shared[1 - me : 2 - me, :])
            core_barrier(shared, (0, 1), engine=nisa.engine.sync)
        nisa.dma_copy(dst=shared[me : me + 1, :], src=tile)
        core_barrier(shared, (0, 1), nisa.engine.unknown)
        return shared

    assert np.array_equal(both(kernel, TWO, lnc=2), TWO)


def test_a_barrier_needs_shared_data_but_says_so_only() -> None:
    def kernel(a: Any) -> Any:
        tile = mine(a)
        core_barrier(tile, (0, 1))
        return result_of_core_0(tile)

    with pytest.warns(UserWarning, match=r"core_barrier\.data-region"):
        both(kernel, TWO, lnc=2)


def test_the_old_keyword_of_sendrecv() -> None:
    def kernel(a: Any, old: bool, new: Any) -> Any:
        tile = mine(a)
        taken = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
        sendrecv(tile, taken, 1 - rank(), 1 - rank(), 0, dma_engine=new, use_gpsimd_dma=old)
        return result_of_core_0(taken)

    with pytest.warns(DeprecationWarning, match="use_gpsimd_dma"):
        both(kernel, TWO, False, nisa.dma_engine.dma, lnc=2)
    assert rejection(kernel, TWO, True, nisa.dma_engine.dma, lnc=2).code == "call.deprecated"


# --- printing


def printed(kernel: Any, *args: Any, capsys: Any) -> list[str]:
    texts = []
    for run in (nki.simulate(kernel), nki.jit(kernel)):
        run(*args)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    return texts[0].splitlines()


def test_device_print_shows_values_at_that_time(capsys: Any) -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        device_print("before: ", tile[0:1, 1:3])
        nisa.memset(dst=tile, value=9)
        device_print("after: ", tile)
        return store(tile)

    lines = printed(kernel, np.array([[1, 2**24 + 1, -5]], np.int32), capsys=capsys)
    assert lines == ["before: [[16777217       -5]]", "after: [[9 9 9]]"]


def test_device_print_knows_every_memory_and_dtype(capsys: Any) -> None:
    def kernel(a: Any) -> Any:
        psum = nl.ndarray((1, 2), np.float32, buffer=nl.psum)
        nisa.memset(dst=psum, value=0.5)
        device_print("psum ", psum)
        device_print("hbm ", a.reshape((2,)))
        packed = nl.ndarray((1, 1), dtypes.float8_e4m3fn_x4, buffer=nl.sbuf)
        nisa.memset(dst=packed, value=0)
        device_print("packed ", packed)
        device_print("half ", load(a, np.float16))
        device_print("truth ", load(a, dtypes.bool_))
        return store(load(a))

    lines = printed(kernel, np.float32([[1.5, 0.0]]), capsys=capsys)
    assert lines == [
        "psum [[0.5 0.5]]",
        "hbm [1.5 0. ]",
        "packed [[0. 0. 0. 0.]]",
        "half [[1.5 0. ]]",
        "truth [[ True False]]",
    ]


# --- versions


@pytest.mark.parametrize(("target", "generation"), [("trn1", 2), ("trn2", 3), ("trn3", 4)])
def test_a_kernel_knows_its_generation(target: str, generation: int) -> None:
    seen = []

    def kernel(a: Any) -> Any:
        seen.append((get_nc_version(), get_nc_sub_version()))
        return store(load(a))

    both(kernel, TWO, target=target)
    assert {version for version, _ in seen} == {nisa.nc_version(generation)}
    assert {sub for _, sub in seen} <= {0, 1}
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        assert get_nc_version() is nisa.nc_version(generation)
        assert get_nc_sub_version() == seen[0][1]


def test_without_a_word_the_generation_is_that_of_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert get_nc_version() is nisa.nc_version.gen4
