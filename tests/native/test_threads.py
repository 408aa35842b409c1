"""Two native threads and one compute the same bits: they wait for each other where work crosses partitions."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.run import team
from tests.forked import statuses
from tests.native.kernel_support import by_numpy, natively, one_after_the_other, seen
from tests.support import environment


def tile(*shape: int, dtype: Any = nl.float32, buffer: Any = nl.sbuf) -> Any:
    """A tensor on chip."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def result(*shape: int) -> Any:
    """A tensor for the caller."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def products(a: Any, b: Any) -> Any:
    """Each product reads all partitions of what was computed partition by partition."""
    x, y, out = tile(128, 128), tile(128, 256), result(128, 256)
    nisa.dma_copy(x, a[0:128, 0:128])
    nisa.dma_copy(y, b[0:128])
    for _ in range(3):
        z, p = tile(128, 256), tile(128, 256, buffer=nl.psum)
        nisa.activation(z, nl.tanh, y, scale=0.5)
        nisa.nc_matmul(p, x, z)
        y = tile(128, 256)
        nisa.tensor_scalar(y, p, nl.multiply, 0.05)
    nisa.dma_copy(out, y)
    return out


def transposes(a: Any, b: Any) -> Any:
    """Transposes by the Tensor engine and by DMA."""
    x, out = tile(128, 128), result(128, 128)
    nisa.dma_copy(x, a[0:128, 0:128])
    for _ in range(2):
        y, p, z = tile(128, 128), tile(128, 128, buffer=nl.psum), tile(128, 128)
        nisa.activation(y, nl.sigmoid, x, scale=1.5)
        nisa.nc_transpose(p, y)
        nisa.tensor_scalar(z, p, nl.subtract, 0.25)
        y, x = tile(128, 128), tile(128, 128)
        nisa.dma_transpose(y, z)
        nisa.tensor_scalar(x, y, nl.multiply, 1.25)
    nisa.dma_copy(out, x)
    return out


def split_rows(a: Any, b: Any) -> Any:
    """The partitions of a tile come from two pieces of device memory."""
    x, y, out = tile(128, 256), tile(128, 256), result(128, 256)
    for i in range(3):
        nisa.dma_copy(x, a.reshape((4, 64, 256))[i % 2 : 4 : 2])
        nisa.activation(y, nl.tanh, x, scale=0.1 * i)
        nisa.tensor_tensor(x, x, y, nl.add)
    nisa.dma_copy(out, x)
    return out


def moved_partitions(a: Any, b: Any) -> Any:
    """Copies in element order to other numbers of partitions, and between halves."""
    x, out = tile(128, 256), result(128, 256)
    nisa.dma_copy(x, a[0:128])
    for _ in range(3):
        y, z, w = tile(128, 256), tile(64, 512), tile(64, 512)
        nisa.activation(y, nl.sigmoid, x)
        nisa.dma_copy(z, y)
        nisa.tensor_scalar(w, z, nl.add, 0.25)
        x, half = tile(128, 256), tile(128, 256)
        nisa.dma_copy(x, w)
        nisa.tensor_scalar(x, x, nl.multiply, 1.25)
        nisa.dma_copy(half[0:64], x[64:128])
        nisa.dma_copy(half[64:128], x[0:64])
        nisa.tensor_tensor(x, x, half, nl.add)
    nisa.dma_copy(out, x)
    return out


def device_memory(a: Any, b: Any) -> Any:
    """Rows go to device memory and come back as others."""
    kept, x, out = nl.ndarray((256, 256), dtype=nl.float32, buffer=nl.private_hbm), tile(128, 256), result(256, 256)
    for i in range(2):
        nisa.dma_copy(x, a[128 * i : 128 * i + 128])
        nisa.activation(x, nl.exp, x, scale=0.3)
        nisa.dma_copy(kept[128 * i : 128 * i + 128], x)
    nisa.dma_copy(x, kept[64:192])
    nisa.tensor_scalar(x, x, nl.add, 1.0)
    nisa.dma_copy(kept[0:128], x)
    nisa.dma_copy(out, kept)
    return out


def registers(a: Any, b: Any) -> Any:
    """Accumulators of all partitions become undefined by an instruction on some, and are set again."""
    x, y, sums, out = tile(128, 256), tile(128, 256), tile(128, 4), result(128, 4)
    reset, more, idle = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce, nisa.reduce_cmd.idle
    nisa.dma_copy(x, a[0:128])
    for i in range(2):
        nisa.exponential(y[0:64], x[0:64], reduce_cmd=idle)
        nisa.exponential(y, x, reduce_cmd=reset)
        nisa.exponential(y, x, reduce_res=sums[:, i : i + 1], reduce_cmd=more)
        nisa.activation_reduce(y, nl.tanh, x, nl.add, sums[:, 2 + i : 3 + i])
    nisa.dma_copy(out, sums)
    return out


def refused(a: Any, b: Any) -> Any:
    """Square roots of negative numbers, which NumPy computes and reports, between instructions of both threads."""
    x, y, out = tile(128, 256), tile(128, 256), result(128, 256)
    nisa.dma_copy(x, a[0:128])
    for _ in range(2):
        nisa.tensor_scalar(x, x, nl.add, 0.25)
        nisa.activation(y, nl.sqrt, x)
        nisa.tensor_tensor(x, x, x, nl.multiply)
    nisa.dma_copy(out, y)
    return out


def same_memory(a: Any, b: Any) -> Any:
    """What is written to one argument is read from the other one, as other rows."""
    x, y, out = tile(128, 256), tile(128, 256), result(128, 256)
    with nl.no_reorder():
        nisa.dma_copy(x, b[0:128])
        nisa.tensor_scalar(x, x, nl.multiply, 2.0)
        nisa.dma_copy(a[0:128], x)
        nisa.dma_copy(y, b[0:128])
        nisa.tensor_scalar(y, y, nl.add, 1.0)
        nisa.dma_copy(out, y)
    return out


def small_and_large(a: Any, b: Any) -> Any:
    """One thread executes what is small, between instructions that both execute on the same bytes."""
    x, few, out = tile(128, 256), tile(128, 8), result(128, 256)
    nisa.dma_copy(x, a[0:128])
    for i in range(3):
        nisa.tensor_scalar(x, x, nl.multiply, 1.25)
        nisa.tensor_copy(few, x[:, 8 * i : 8 * i + 8])
        nisa.tensor_scalar(few, few, nl.add, 0.5)
        nisa.tensor_tensor(few, few, few, nl.multiply)
        nisa.tensor_copy(x[:, 16 * i : 16 * i + 8], few)
        nisa.activation(x, nl.tanh, x)
    nisa.dma_copy(out, x)
    return out


KERNELS = [
    products, transposes, split_rows, moved_partitions, device_memory, registers, refused, same_memory, small_and_large,
]  # fmt: skip


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Two arrays that overlap."""
    both = np.random.default_rng(3).standard_normal((320, 256)).astype(np.float32)
    return both[0:256], both[64:320]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first thread first", "second thread first"])
@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_order_of_threads(function: Any, order: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one thread does before the other one begins, up to the next barrier, bits and warnings are the same."""
    wanted = by_numpy(function, arrays)
    with one_after_the_other(order, monkeypatch) as met:
        assert natively(function, arrays, threads=2) == wanted
    assert met, "the kernel was executed by two threads"


def test_no_needless_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that stays inside partitions is not interrupted."""

    def elementwise(a: Any) -> Any:
        x, out = tile(128, 256), result(128, 256)
        nisa.dma_copy(x, a[0:128])
        for _ in range(4):
            nisa.activation(x, nl.tanh, x)
            nisa.tensor_scalar(x, x, nl.multiply, 2.0)
        nisa.dma_copy(out, x)
        return out

    with one_after_the_other((1, 0), monkeypatch) as met:
        natively(elementwise, lambda: arrays()[:1], threads=2, calls=1)
    assert met == [1]


def test_small_instructions_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that executes all of them does not wait for the other one between them."""

    def tiny(a: Any) -> Any:
        x, y, out = tile(128, 8), tile(128, 8), result(128, 8)
        nisa.dma_copy(x, a[0:128, 0:8])
        for _ in range(40):
            nisa.tensor_scalar(y, x, nl.add, 1.0)
            nisa.tensor_scalar(x, y, nl.subtract, 0.5)
        nisa.dma_copy(out, x)
        return out

    with one_after_the_other((1, 0), monkeypatch) as met:
        natively(tiny, lambda: arrays()[:1], threads=2, calls=1)
    assert met == [1]


def test_threads_for_real() -> None:
    """The same with threads that run at once, from several calls at once; whoever finds them busy does without."""
    wanted = {function: by_numpy(function, arrays) for function in KERNELS}
    with environment(NKI_NATIVE="always", NKI_THREADS="2"):
        kernels = {function: nki.jit(function) for function in KERNELS}
        wrong: list[Any] = []

        def work(first: int) -> None:
            for i in range(2 * len(KERNELS)):
                function = KERNELS[(first + i) % len(KERNELS)]
                if seen(kernels[function], arrays()) != wanted[function]:
                    wrong.append(function)

        callers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not wrong


FORKED = """
os.environ |= {"NKI_NATIVE": "always", "NKI_THREADS": "2"}
import nki
from tests.native.test_threads import arrays, products

kernel = nki.jit(products)
wanted = kernel(*arrays()).tobytes()

def child():
    assert kernel(*arrays()).tobytes() == wanted

print(status(child))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork(tmp_path: Path) -> None:
    """A forked process has threads of its own; it would wait for ever for those that it does not have."""
    assert statuses(FORKED, tmp_path) == ["0"]


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is interrupted while others work returns when they are done, and the next one is right."""
    monkeypatch.setattr(team, "_processors", lambda: 2)
    with environment(NKI_NATIVE="always", NKI_THREADS="2"):
        kernel = nki.jit(products)
        wanted = kernel(*arrays()).tobytes()
        ended: list[int] = []
        finish = team._finish

        def slowly(run: Any, arguments: Any, done: Any) -> None:
            def noted(*given: Any) -> int:
                time.sleep(0.05)
                found: int = run(*given)
                ended.append(1)  # what comes after `finish` may come after the call as well
                return found

            finish(noted, arguments, done)

        with monkeypatch.context() as patch:
            patch.setattr(team, "_finish", slowly)
            plain = team.Team.run
            patch.setattr(team.Team, "run", lambda own, run, *rest: plain(own, _Torn(run), *rest))
            with pytest.raises(KeyboardInterrupt):
                kernel(*arrays())
            assert ended == [1]
        assert kernel(*arrays()).tobytes() == wanted


class _Torn:
    """Records that are executed by all threads but the one that is interrupted."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._caller = threading.get_ident()

    def __call__(self, *arguments: Any) -> int:
        if threading.get_ident() == self._caller:
            raise KeyboardInterrupt
        found: int = self._run(*arguments)
        return found
