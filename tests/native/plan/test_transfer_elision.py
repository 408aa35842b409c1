"""Transfers that are left out, and tensors that are device memory in place of a copy, cannot be seen in results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.native.plan import transfer_elision
from nki.native.run import kernel
from tests.native.kernel_support import by_numpy, natively

WIDE = 97
"""Elements of a row of device memory: an odd number, so that rows do not begin at multiples of 4 bytes."""


def tile(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def result(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor for the caller."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def halves(seed: int = 0) -> np.ndarray:
    """All kinds of bits."""
    bits: np.ndarray = np.random.default_rng(seed).integers(0, 1 << 15, (128, WIDE)).astype(np.uint16)
    return bits.view(np.float16)


def floats() -> tuple[np.ndarray, ...]:
    """Two arrays."""
    a, b = np.random.default_rng(1).standard_normal((2, 256, 96)).astype(np.float32)
    return a, b


def same(function: Callable[..., Any], make: Callable[[], tuple[np.ndarray, ...]], lnc: int = 1) -> list[Any]:
    """What is seen of a kernel, which is the same for both executors."""
    found = natively(function, make, lnc)
    assert found == by_numpy(function, make, lnc)
    return found


@pytest.mark.parametrize("kind", [nl.float16, nl.int32], ids=str)
def test_elements_by_number(kind: Any) -> None:
    """A tile in the middle of device memory, whose elements are picked by number, also as those of another dtype."""

    def picked(a: Any, offsets: Any) -> Any:
        x, y, index = tile(128, 96, dtype=nl.float16), tile(128, 16, dtype=kind), tile(128, 1, dtype=nl.uint16)
        nisa.dma_copy(x, a[:, 1:WIDE])
        nisa.dma_copy(index, offsets)
        nisa.tensor_copy(y, x.view(kind).indirect(index, 16))
        out = result(128, 16, dtype=kind)
        nisa.dma_copy(out, y)
        return out

    offsets = (np.arange(128) * 7 % 48).astype(np.uint16)[:, None]
    found = same(picked, lambda: (halves(), offsets))
    row = np.ascontiguousarray(halves()[0, 1:]).view(np.float16 if kind is nl.float16 else np.int32)
    assert found[0][0][0].startswith(row[offsets[:16, 0]].tobytes())


def test_rows_of_every_kind() -> None:
    """Single rows, columns, repeated and reversed rows, and rows that are half as long in device memory."""

    def rows(a: Any, b: Any) -> Any:
        out, reshaped, repeated, backwards = result(128, 96), result(96, 128), result(128, 96), result(128, 96)
        row = tile(1, 96)
        nisa.dma_copy(row, a[3:4])
        nisa.tensor_scalar(row, row, nl.add, 1.0)
        nisa.dma_copy(out[0:1], row)
        nisa.dma_copy(out[1:128, 95:96], a[1:128, 0:1])
        for column in range(0, 95, 5):
            x, y = tile(128, 5), tile(128, 5)
            nisa.dma_copy(x, a[0:128, column : column + 5])
            nisa.tensor_scalar(y, x, nl.multiply, 3.0)
            nisa.dma_copy(out[1:128, column : column + 5], y[0:127])
        x, y = tile(96, 128), tile(96, 128)
        nisa.dma_copy(x, a[0:128].reshape((96, 128)))
        nisa.activation(y, nl.tanh, x)
        nisa.dma_copy(reshaped, y)
        x, y = tile(128, 96), tile(128, 96)
        nisa.dma_copy(x, a.ap([[0, 128], [1, 96]], offset=288))
        nisa.tensor_scalar(y, x, nl.add, 1.0)
        nisa.dma_copy(repeated, y)
        x, y = tile(128, 96), tile(128, 96)
        nisa.dma_copy(x, b.ap([[-96, 128], [1, 96]], offset=127 * 96))
        nisa.tensor_scalar(y, x, nl.add, 2.0)
        nisa.dma_copy(backwards.ap([[96, 128], [-1, 96]], offset=95), y)
        return out, reshaped, repeated, backwards

    a, b = floats()
    found = [np.frombuffer(data, np.float32) for data in same(rows, floats)[0][0]]
    out = found[0].reshape(128, 96)
    assert out[0].tobytes() == (a[3] + 1).tobytes()
    assert out[1:, :95].tobytes() == (a[:127, :95] * np.float32(3)).tobytes()
    assert found[2].tobytes() == np.repeat(a[3:4] + 1, 128, 0).tobytes()
    assert found[3].tobytes() == (b[127::-1, ::-1] + 2).tobytes()


def test_argument_that_changes() -> None:
    """Rows of an argument change places: neither tile may be the rows themselves."""

    def swapped(a: Any, b: Any) -> Any:
        x, y = tile(128, 96), tile(128, 96)
        nisa.dma_copy(x, a[0:128])
        nisa.dma_copy(y, a[128:256])
        nisa.dma_copy(a[0:128], y)
        nisa.dma_copy(a[128:256], x)
        return a, b

    a, b = floats()
    once, twice, arguments = same(swapped, floats)
    assert once[0] == [np.concatenate([a[128:], a[:128]]).tobytes(), b.tobytes()]
    assert twice[0] == arguments == [a.tobytes(), b.tobytes()]


def test_stores_of_each_trip() -> None:
    """A tile that a loop stores in each trip, and that comes back from there."""

    def trips(a: Any, b: Any) -> Any:
        out, kept = result(256, 96), nl.ndarray((128, 96), dtype=nl.float32, buffer=nl.private_hbm)
        nisa.dma_copy(out[128:256], b[0:128])

        def body(_: Any) -> None:
            x, y, z = tile(128, 96), tile(128, 96), tile(128, 96)
            nisa.dma_copy(x, a[0:128])
            nisa.tensor_scalar(y, x, nl.add, 1.0)
            nisa.dma_copy(kept, y)
            nisa.dma_copy(z, kept)
            nisa.tensor_scalar(z, z, nl.multiply, 2.0)
            nisa.dma_copy(out[0:128], z)

        nl.fori_loop(0, 2, body)
        return out

    a, b = floats()
    assert same(trips, floats)[0][0] == [np.concatenate([(a[:128] + 1) * 2, b[:128]]).tobytes()]


def test_memory_of_two_cores() -> None:
    """What one core stores, the other one loads behind a barrier; their tiles are not each other's memory."""

    def exchanged(a: Any, b: Any) -> Any:
        core = nl.program_id(0)
        own, other = nl.ds(core * 128, 128), nl.ds((1 - core) * 128, 128)
        out, middle, x, y = result(256, 96), result(256, 96), tile(128, 96), tile(128, 96)
        nisa.dma_copy(x, a[own])
        nisa.tensor_scalar(x, x, nl.add, 1.0)
        nisa.dma_copy(middle[own], x)
        nisa.core_barrier(middle, (0, 1))
        nisa.dma_copy(y, middle[other])
        nisa.tensor_tensor(y, y, x, nl.multiply)
        nisa.dma_copy(out[own], y)
        return out

    a, _ = floats()
    more = a + 1
    product = more[:128] * more[128:]
    assert same(exchanged, floats, lnc=2)[0][0] == [np.concatenate([product, product]).tobytes()]


def test_cores_that_meet_and_both_write_the_whole_result() -> None:
    """Each core sums its own half and the other one's, and both store all of it: the tile is no part of the result."""

    def summed(a: Any, b: Any) -> Any:
        core = nl.program_id(0)
        own, other, total = tile(128, 96), tile(128, 96), tile(128, 96)
        nisa.dma_copy(own, a[nl.ds(core * 128, 128)])
        nisa.tensor_scalar(total, own, nl.multiply, 2.0)
        nisa.sendrecv(own, other, 1 - core, 1 - core, 0)
        nisa.tensor_tensor(total, total, other, nl.add)
        nisa.tensor_tensor(total, total, own, nl.subtract)
        out = result(128, 96)
        nisa.dma_copy(out, total)
        return out

    a, _ = floats()
    first, second = a[:128], a[128:]
    assert same(summed, floats, lnc=2)[0][0] == [(first * 2 + second - first).tobytes()]


def test_versions_of_a_tile() -> None:
    """A tile that is an argument first, then memory of its own, then the result, and another result after that."""

    def versions(a: Any, b: Any) -> Any:
        first, second, third = result(128, 96), result(128, 96), result(128, 96)
        x, y = tile(128, 96), tile(128, 96)
        nisa.dma_copy(x, a[0:128])
        nisa.dma_copy(y, b[0:128])
        nisa.tensor_scalar(x, x, nl.multiply, 3.0)
        nisa.tensor_tensor(x, x, y, nl.add)
        nisa.dma_copy(first, x)
        nisa.tensor_scalar(y, x, nl.multiply, 2.0)
        nisa.tensor_tensor(x, y, x, nl.subtract)
        nisa.dma_copy(second, x)
        nisa.dma_copy(x, a[128:256])
        nisa.tensor_tensor(y, y, x, nl.add)
        nisa.dma_copy(third, y)
        return first, second, third

    a, b = floats()
    total = a[:128] * np.float32(3) + b[:128]
    expected = [total, total * 2 - total, total * 2 + a[128:]]
    assert same(versions, floats)[0][0] == [array.tobytes() for array in expected]


def test_transfers_that_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tile that is changed in place, neither the load nor the store."""
    found: list[tuple[int, int]] = []
    plain = kernel.forwarded

    def seen(*arguments: Any) -> transfer_elision.Forwarded:
        moved = plain(*arguments)
        found.append((len(moved.skipped), len(moved.places)))
        return moved

    def increased(a: Any, b: Any) -> Any:
        out, x, y = result(256, 96), tile(128, 96), tile(128, 96)
        for rows in (slice(0, 128), slice(128, 256)):
            nisa.dma_copy(x, a[rows])
            nisa.dma_copy(y, b[rows])
            nisa.tensor_tensor(x, x, y, nl.add)
            nisa.dma_copy(out[rows], x)
        return out

    monkeypatch.setattr(kernel, "forwarded", seen)
    a, b = floats()
    assert natively(increased, floats)[0][0] == [(a + b).tobytes()]
    assert found == [(6, 6)]


def test_parts_of_a_version() -> None:
    """What overwrites a part of a tile, under a mask or adds to it leaves the version the same."""

    def parts(a: Any, b: Any) -> Any:
        outs = [result(128, 96) for _ in range(4)]
        for number, out in enumerate(outs):
            x, mask = tile(128, 96), tile(128, 96, dtype=nl.uint8)
            nisa.dma_copy(x, a[0:128])
            if number == 0:
                nisa.tensor_scalar(x[:, 1:96], x[:, 0:95], nl.add, 1.0)
            elif number == 1:
                nisa.memset(mask[:, 0:40], 1)
                nisa.memset(mask[:, 40:96], 0)
                nisa.tensor_copy_predicated(x, b_tile(b), mask)
            elif number == 2:
                nisa.tensor_scalar(x[0:64], x[64:128], nl.add, 1.0)
            else:
                nisa.dma_compute(dst=x, srcs=[x, b[0:128]], scales=[1.0, 1.0], reduce_op=nl.add)
            nisa.dma_copy(out, x)
        return tuple(outs)

    def b_tile(b: Any) -> Any:
        y = tile(128, 96)
        nisa.dma_copy(y, b[0:128])
        return y

    a, b = (array[:128] for array in floats())
    shifted, halved = a.copy(), a.copy()
    shifted[:, 1:] = a[:, :95] + 1
    halved[:64] = a[64:] + 1
    expected = [shifted, np.where(np.arange(96) < 40, b, a), halved, a + b]
    assert same(parts, floats)[0][0] == [array.tobytes() for array in expected]
