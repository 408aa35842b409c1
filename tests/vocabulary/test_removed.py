"""Names that earlier versions had: reading one in a kernel says what to write today."""

from __future__ import annotations

import linecache
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.compiler
import nki.isa as nisa
import nki.lang
import nki.language as nl
from nki.core.errors import RemovedError
from nki.core.names import removed_table as removed
from tests.support import both, rejection
from tests.together import together

X = np.arange(12, dtype=np.float32).reshape(3, 4)

TABLES = {
    "nki": (nki, removed.NKI),
    "nki.language": (nl, removed.LANGUAGE),
    "nki.isa": (nisa, removed.ISA),
    "nki.compiler": (nki.compiler, removed.COMPILER),
}
EACH = [(module, path, name, item) for path, (module, table) in TABLES.items() for name, item in table.items()]


def test_there_are_some_of_each() -> None:
    told = {path: len(table) for path, (_, table) in TABLES.items()}
    assert told == {"nki": 4, "nki.language": 18, "nki.isa": 60, "nki.compiler": 8}


@together("module, path, name, item", EACH)
def test_a_kernel_that_reads_it(module: ModuleType, path: str, name: str, item: removed.Removed) -> None:
    def kernel(a: Any) -> Any:
        getattr(module, name)
        return a

    error = rejection(kernel, X)
    assert isinstance(error, RemovedError)
    assert (error.code, error.fix) == ("name.removed", item.instead)
    assert error.message == f"{path}.{name} does not exist" + (f" since NKI {item.since}" if item.since else "")
    frame = error.location.frames[0]
    assert linecache.getline(frame.file, frame.line)[frame.column : frame.end_column] == "getattr(module, name)"


@pytest.mark.parametrize("spelling", [nl, nki.lang], ids=["language", "lang"])
def test_in_the_spelling_of_old_kernels(spelling: Any) -> None:
    def indices(a: Any) -> Any:
        return nl.load(a[spelling.arange(3)[:, None], spelling.arange(4)[None, :]])

    def grid(a: Any) -> Any:
        i = spelling.mgrid[0:3, 0:4]
        return nl.load(a[i.p, i.x])

    def partitions(a: Any) -> Any:
        return spelling.ndarray((2, spelling.par_dim(3), 4), a.dtype, buffer=spelling.sbuf)

    for kernel, shown in (
        (indices, "spelling.arange"),
        (grid, "spelling.mgrid"),
        (partitions, "spelling.par_dim"),
    ):
        error = rejection(kernel, X)
        frame = error.location.frames[0]
        assert error.code == "name.removed"
        assert linecache.getline(frame.file, frame.line)[frame.column : frame.end_column] == shown


def test_what_the_messages_say_works() -> None:
    def slices(a: Any) -> Any:
        tile = nl.ndarray((3, 2), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[0:3, 1:3])
        out = nl.ndarray((3, 2), a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def chosen(a: Any, n: Any) -> Any:
        tile, column = nl.load(a), nl.ndarray((3, 1), a.dtype, buffer=nl.sbuf)
        index = nisa.register_alloc(n)
        nisa.tensor_copy(dst=column, src=tile.ap([[4, 3], [1, 1]], scalar_offset=index, indirect_dim=1))
        out = nl.ndarray((3, 1), a.dtype, buffer=nl.shared_hbm)
        nl.store(out, column)
        return out

    np.testing.assert_array_equal(both(slices, X), X[0:3, 1:3])
    for n in range(4):
        np.testing.assert_array_equal(both(chosen, X, np.array([[n]], np.int32)), X[:, n : n + 1])


def test_casts_and_sums_as_the_messages_say() -> None:
    def cast(a: Any) -> Any:
        out = nl.ndarray(a.shape, nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nl.load(a), dtype=nl.bfloat16))
        return out

    def read_modify_write(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        nl.store(out, tile)
        nisa.dma_compute(dst=out, srcs=[tile, out], reduce_op=nl.add)
        return out

    def total(a: Any) -> Any:
        total = nl.zeros((3, 1), a.dtype)
        for i in range(4):
            nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(a[:, i : i + 1]), op=nl.add)
        out = nl.ndarray((3, 1), a.dtype, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    np.testing.assert_array_equal(both(cast, X), X.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(both(read_modify_write, X), 2 * X)
    np.testing.assert_array_equal(both(total, X), X.sum(1, keepdims=True))


@pytest.mark.parametrize(("name", "instead"), [("sbuf", "sbuf"), ("psum", "psum"), ("hbm", "shared_hbm")])
def test_regions_without_an_import(name: str, instead: str) -> None:
    def kernel(a: Any) -> Any:
        return eval(f"{name}.view(dtype=a.dtype, shape=a.shape)")

    with pytest.raises(nki.errors.RemovedError, match=f"{name} is not defined") as caught:
        nki.simulate(kernel)(np.ones((4, 4), np.float32))
    assert caught.value.fix == f"write nl.ndarray(shape, dtype, buffer=nl.{instead})"


def test_another_undefined_name_is_no_name_of_an_earlier_version() -> None:
    def kernel(a: Any) -> Any:
        return undefined  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(nki.errors.FrontendError, match="undefined") as caught:
        nki.simulate(kernel)(np.ones((4, 4), np.float32))
    assert caught.value.code == "python.undefined"


def test_bool_is_the_dtype() -> None:
    assert nl.bool is nl.bool_
