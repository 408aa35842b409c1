"""Windows and the notes about written bytes, against a list of elements in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.core.dtypes import DType, bfloat16, float32, uint8
from nki.core.tensor import MemoryRegion, View, whole
from nki.sim.psum import byte_states, common_state, set_state
from nki.spec.engine import engine as Engine
from tests.sim.machines import Bench, numbers

F = np.float32
PARTITIONS, FREE = 4, 24
_OTHER = {float32: uint8, uint8: bfloat16, bfloat16: uint8}


@st.composite
def strided_views(draw: st.DrawFn, tensor: View) -> View:
    """One or two free dimensions with any strides that stay in the partition, of some partitions."""
    row = tensor.row
    first = draw(st.integers(0, PARTITIONS - 1))
    shape, strides = [draw(st.integers(1, PARTITIONS - first))], [row]
    left = row
    free = draw(st.integers(0, row - 1))
    left = row - 1 - free
    for _ in range(draw(st.integers(1, 2))):
        stride = draw(st.integers(0, 5))
        most = min(4, left // stride + 1) if stride else 3
        size = draw(st.integers(1, most))
        left -= (size - 1) * stride
        shape.append(size)
        strides.append(stride)
    return View(tensor.buffer, tensor.dtype, tuple(shape), tuple(strides), first * row + free)


def distinct(view: View) -> bool:
    """Whether no element is there twice; which of two values would stay is not defined."""
    return len(set(numbers(view))) == view.size


def as_dtype(tensor: View, dtype: DType) -> View:
    """The same buffer under another dtype."""
    row = tensor.buffer.row_bytes // dtype.itemsize
    return View(tensor.buffer, dtype, (PARTITIONS, row), (row, 1), 0)


@st.composite
def programs(draw: st.DrawFn) -> tuple[DType, tuple[int, int] | None, list[tuple[bool, DType, st.DataObject]]]:
    dtype = draw(st.sampled_from([float32, bfloat16, uint8]))
    address = draw(st.sampled_from([None, (0, 64)]))
    steps = draw(st.lists(st.tuples(st.booleans(), st.sampled_from([dtype, dtype, _OTHER[dtype]])), max_size=12))
    return dtype, address, [(writes, seen, draw(st.data())) for writes, seen in steps]


@settings(max_examples=150, deadline=None)
@given(programs())
def test_reads_and_writes_of_any_views_match_a_list_of_bytes(program: object) -> None:
    dtype, address, steps = program  # type: ignore[misc]
    bench = Bench()
    tensor = bench.tensor((PARTITIONS, FREE // dtype.itemsize * 2), dtype, address=address)
    content: dict[int, int] = {}  # byte number to value, for the bytes that were written
    random = np.random.default_rng(1)
    for writes, seen, data in steps:
        views = strided_views(as_dtype(tensor, seen))
        view = data.draw(views.filter(distinct) if writes else views)
        size = seen.itemsize
        where = [[n * size + b for b in range(size)] for n in numbers(view)]
        if writes:
            values = random.integers(0, 256, (len(where), size), np.uint8)
            bench.machine.store_raw(view, values.view(seen.numpy).reshape(view.shape[0], -1))
            for place, item in zip(where, values, strict=True):
                content.update(zip(place, item.tolist(), strict=True))
        else:
            got = np.ascontiguousarray(bench.machine.load_raw(view)).reshape(-1, 1).view(np.uint8)
            assert bench.warned() == any(place[0] not in content for place in where)
            for place, item in zip(where, got, strict=True):
                for byte, value in zip(place, item.tolist(), strict=True):
                    assert content.get(byte, value) == value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_was_not_written_stays_poison(data: st.DataObject) -> None:
    bench = Bench()
    tensor = bench.tensor((PARTITIONS, FREE), bfloat16)
    view = data.draw(strided_views(tensor))
    bench.machine.store(view, F(2.5))
    got = np.asarray(bench.machine.load(tensor)).reshape(-1)
    touched = set(numbers(view))
    assert bench.warned() == (len(touched) < got.size)
    for number, value in enumerate(got):
        assert value == 2.5 if number in touched else np.isnan(value)


def test_pieces_that_fill_a_buffer_end_the_tracking() -> None:
    bench = Bench()
    tensor = bench.tensor((PARTITIONS, FREE), float32)
    for column in range(0, FREE, 8):
        part = tensor._replace(shape=(PARTITIONS, 8), offset=column)
        bench.machine.load(part)
        assert bench.warned()
        bench.machine.store(part, F(column))
        bench.machine.load(part)
        assert not bench.warned()
    assert bench.storages[0].written is None
    assert not bench.storages[0].fresh


def test_the_same_piece_again_and_again_does_not_fill_a_buffer() -> None:
    bench = Bench()
    tensor = bench.tensor((PARTITIONS, FREE), float32)
    for width in (2, 3, 4, 5, 6, 7, 8, 9, 10):
        bench.machine.store(tensor._replace(shape=(PARTITIONS, width)), F(1))
    bench.machine.load(tensor)
    assert bench.warned()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_psum_remembers_who_wrote_last(data: st.DataObject) -> None:
    """accumulate=None adds where a location was written before, element by element."""
    bench = Bench()
    tensor = bench.tensor((PARTITIONS, FREE), float32, MemoryRegion.psum)
    model: dict[int, np.float32] = {}
    random = np.random.default_rng(7)
    for _ in range(data.draw(st.integers(1, 10))):
        view = data.draw(strided_views(tensor).filter(distinct))
        values = random.standard_normal((view.shape[0], view.free_size)).astype(F)
        by_matmul = data.draw(st.booleans())
        mode = data.draw(st.sampled_from([None, None, True, False]))
        bench.machine.engine = Engine.tensor if by_matmul else Engine.vector
        if by_matmul:
            written = [n in model for n in numbers(view)]
            bench.machine.accumulate(view, values, mode)
            complained = any(f.code == "psum.accumulate-unwritten" for f in bench.findings)
            assert complained == (mode is True and not all(written))
        else:
            bench.machine.store(view, values)
        for number, value in zip(numbers(view), values.reshape(-1), strict=True):
            adds = by_matmul and (mode or (mode is None and number in model))
            model[number] = F(model.get(number, F(np.nan)) + value) if adds else value
        bench.warned()
    got = np.asarray(bench.machine.load(whole(tensor.buffer))).reshape(-1)
    for number, value in model.items():
        assert got[number] == value or (np.isnan(got[number]) and np.isnan(value))


def test_adding_to_what_another_engine_wrote_is_noticed() -> None:
    for target in ("trn1", "trn2"):
        bench = Bench(target)
        noticed = not bench.machine.target.pe.accumulate_over_foreign_psum
        tensor = bench.tensor((PARTITIONS, FREE), float32, MemoryRegion.psum)
        half = tensor._replace(shape=(PARTITIONS, FREE // 2))
        bench.machine.engine = Engine.tensor
        bench.machine.accumulate(tensor, np.ones((PARTITIONS, FREE), F), False)
        bench.machine.accumulate(tensor, np.ones((PARTITIONS, FREE), F), True)
        assert not bench.warned()
        bench.machine.engine = Engine.vector
        bench.machine.store(half, F(0))
        bench.machine.engine = Engine.tensor
        bench.machine.accumulate(tensor, np.ones((PARTITIONS, FREE), F), True)
        assert bench.warned() == noticed


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_state_of_psum_bytes_under_several_dtypes(data: st.DataObject) -> None:
    """An element has the state of its first byte, whatever it was written as."""
    bench = Bench()
    tensor = bench.tensor((PARTITIONS, FREE), float32, MemoryRegion.psum)
    storage = bench.storages[0]
    model: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        seen = as_dtype(tensor, data.draw(st.sampled_from([float32, bfloat16])))
        view = data.draw(st.one_of(st.just(seen), strided_views(seen)))
        first = [n * view.dtype.itemsize for n in numbers(view)]
        states = {model.get(byte, 0) for byte in first}
        assert common_state(storage, view, storage.window(view)) == (states.pop() if len(states) == 1 else -1)
        writer = data.draw(st.sampled_from([1, 2]))
        set_state(storage, view, storage.window(view), writer)
        model.update(dict.fromkeys(first, writer))
    got = byte_states(storage)
    assert [model.get(byte, 0) for byte in range(got.size)] == got.tolist()
