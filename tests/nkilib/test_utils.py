"""Utilities for kernels: views, tiles, addresses from a stack and a heap, copies between partitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.allocator import SbufManager, create_auto_alloc_manager
from nkilib.core.utils.common_types import ActFnType, NormType
from nkilib.core.utils.cross_partition_copy import cross_partition_copy
from nkilib.core.utils.kernel_assert import assert_shape, kernel_assert
from nkilib.core.utils.kernel_helpers import (
    get_ceil_aligned_size,
    get_floor_aligned_size,
    get_max_positive_value_for_dtype,
    get_nl_act_fn_from_type,
    get_program_sharding_info,
    get_verified_program_sharding_info,
    is_hbm_buffer,
    is_launched_as_spmd,
    is_rms_normalization,
    normalization_uses_weights,
    reduce,
)
from nkilib.core.utils.logging import Logger, LogLevel, get_logger
from nkilib.core.utils.stream_shuffle_broadcast import stream_shuffle_broadcast
from nkilib.core.utils.tensor_view import TensorView
from nkilib.core.utils.tiled_range import TiledRange
from nkilib.core.utils.tp_broadcast import tp_broadcast
from nkilib.errors import KernelLimit


def traced(body, *, lnc=1):
    """What `body` returns while a kernel is traced."""
    seen = []

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        seen.append(body())
        return out

    nki.simulate(kernel)[lnc](np.zeros((1, 4), np.float32))
    return seen[0] if lnc == 1 else seen


# --- tiles


@given(st.integers(0, 2000), st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_tiles_cover_a_dimension_and_tiles_of_tiles_as_well(size, tile, inner):
    covered = [i for each in TiledRange(size, tile) for i in range(each.start_offset, each.end_offset)]
    assert covered == list(range(size))
    for outer in TiledRange(size, tile):
        parts = TiledRange(outer, inner)
        assert [part.index for part in parts] == list(range(len(parts)))
        assert sum(part.size for part in parts) == outer.size and parts[0].start_offset == outer.start_offset


def test_tiles_have_elements():
    with pytest.raises(KernelLimit, match="tile_size is 0"):
        TiledRange(5, 0)
    assert "start_offset=128, end_offset=130" in repr(TiledRange(130, 128)[1])


# --- questions


def test_questions_about_sizes_and_names():
    assert (get_ceil_aligned_size(300, 128), get_floor_aligned_size(300, 128)) == (384, 256)
    assert is_rms_normalization(NormType.RMS_NORM_SKIP_GAMMA) and not is_rms_normalization(NormType.LAYER_NORM)
    assert normalization_uses_weights(NormType.LAYER_NORM) and not normalization_uses_weights(NormType.NO_NORM)
    assert get_nl_act_fn_from_type(ActFnType.Swish) == nl.gelu_apprx_sigmoid
    assert get_max_positive_value_for_dtype(nl.float8_e4m3) == 240.0
    assert get_max_positive_value_for_dtype(nl.bfloat16) is None
    assert [reduce(op, [3, 1, 2], 2) for op in ("mul", "add", "min", "max")] == [12, 8, 1, 3]
    with pytest.raises(AssertionError, match="no activation function for 'relu'"):
        get_nl_act_fn_from_type("relu")
    with pytest.raises(KernelLimit, match="op is 'sub'"):
        reduce("sub", [1], 0)
    with pytest.raises(KernelLimit, match="needs input"):
        reduce("add", None, 0)


def test_questions_about_the_launch():
    assert traced(lambda: (get_program_sharding_info()[1:], is_launched_as_spmd())) == ((1, 0), False)
    found = traced(lambda: (get_program_sharding_info()[1:], is_launched_as_spmd()), lnc=2)
    assert sorted(found) == [((2, 0), True), ((2, 1), True)]
    with pytest.raises(KernelLimit, match="mine runs on 2 cores, not 1"):
        traced(lambda: get_verified_program_sharding_info("mine", max_sharding=1), lnc=2)


def test_assertions_are_coded_and_are_assertion_errors():
    with pytest.raises(AssertionError, match="seven"):
        kernel_assert(False, "seven")
    with pytest.raises(KernelLimit, match=r"x has shape \(2, 3\), not \(3, 2\)") as refused:
        assert_shape(np.zeros((2, 3)), (3, 2), "x")
    assert refused.value.code == "nkilib.argument"


# --- addresses


def addresses(plan):
    return traced(lambda: plan(SbufManager(0, 4096)))


def test_stack_and_heap_are_laid_out_as_documented():
    def plan(sbm):
        heap = sbm.alloc_heap((128, 256), nl.bfloat16, name="weights")
        sbm.open_scope(name="outer")
        first = sbm.alloc_stack((128, 512), nl.bfloat16, name="first")
        sbm.open_scope()
        inner = [sbm.alloc_stack((128, 256), nl.bfloat16) for _ in range(2)]
        used = sbm.get_used_space()
        sbm.close_scope()
        again = sbm.alloc((128, 512), nl.bfloat16)
        sbm.close_scope()
        sbm.pop_heap()
        assert sbm.get_free_space() == sbm.get_total_space() == 4096
        return [each.address for each in (heap, first, *inner, again)], used

    found, used = addresses(plan)
    assert found == [(0, 3584), (0, 0), (0, 1024), (0, 1536), (0, 1024)]
    assert used == 512 + 2048


def test_sections_of_a_loop_do_not_touch_what_inner_scopes_of_the_one_before_use():
    def plan(sbm):
        found = []
        sbm.open_scope(interleave_degree=2)
        for _ in range(4):
            found.append(sbm.alloc_stack((128, 128), nl.uint8).address[1])
            sbm.open_scope()
            found.append(sbm.alloc_stack((128, 128), nl.uint8).address[1])
            sbm.close_scope()
            sbm.increment_section()
        sbm.close_scope()
        return found

    assert addresses(plan) == [0, 128, 256, 384] * 2


def test_alignment_and_the_heap_by_default():
    def plan(sbm):
        sbm.open_scope()
        sbm.alloc_stack((128, 3), nl.uint8)
        sbm.align_stack_curr_addr(32)
        assert sbm.get_stack_curr_addr() == 32
        sbm.alloc_stack((128, 1), nl.uint8)
        aligned = sbm.alloc_stack((128, 1), nl.float32, align=64).address[1]
        heap = sbm.alloc_heap((128, 3), nl.uint8, align=64).address[1]
        assert sbm.get_heap_curr_addr() == heap
        lower = sbm.alloc_stack((32, 1), nl.float32, base_partition=32).address
        sbm.close_scope()
        return aligned, heap, lower

    assert addresses(plan) == (64, 4032, (32, 68))
    manager = SbufManager(0, 64, default_stack_alloc=False)
    assert manager.is_default_heap_alloc() and not manager.is_default_stack_alloc()
    assert traced(lambda: manager.alloc((128, 16), nl.uint8).address) == (0, 48)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sbm: sbm.alloc_stack((128, 4), nl.uint8), "no open scope"),
        (lambda sbm: sbm.close_scope(), "no open scope"),
        (lambda sbm: sbm.pop_heap(), "heap is empty"),
        (lambda sbm: sbm.alloc_heap((128, 100), nl.float32), "400 bytes per partition, 256 are free of 256"),
        (lambda sbm: sbm.alloc_heap((128, 1), nl.float32, buffer=nl.psum), "buffer is psum"),
        (lambda sbm: sbm.open_scope(0), "interleave_degree is 0"),
    ],
)
def test_what_a_manager_refuses(call, message):
    with pytest.raises(KernelLimit, match=message) as refused:
        traced(lambda: call(SbufManager(0, 256)))
    assert refused.value.code == "nkilib.argument"


def test_addresses_are_left_to_the_compiler():
    manager = create_auto_alloc_manager()
    with pytest.raises(KernelLimit, match="get_stack_curr_addr is not supported in auto-allocation mode"):
        manager.get_stack_curr_addr()

    @nki.jit
    def kernel(x):
        sbm = create_auto_alloc_manager()
        sbm.set_name_prefix("mine_")
        sbm.open_scope()
        tile = sbm.alloc_stack(x.shape, x.dtype, name="tile")
        assert tile.name == "mine_tile" and sbm.get_name_prefix() == "mine_"
        out = sbm.alloc(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)
        sbm.close_scope()
        return out

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(kernel(x), x)


def test_the_log_is_a_tree(capsys):
    def plan():
        sbm = SbufManager(0, 4096, Logger("SBM", LogLevel.DEBUG))
        sbm.open_scope(2, "loop")
        for _ in range(2):
            sbm.alloc_stack((128, 512), nl.bfloat16, name=None)
            sbm.increment_section()
        sbm.close_scope()

    traced(plan)
    printed = capsys.readouterr().out
    assert "▶ SCOPE loop [interleave=2] @ 0" in printed
    assert "├── (unnamed): 1024 B @ 1024 (128, 512) bfloat16" in printed
    assert "◀ END loop freed=" in printed


def test_levels_of_loggers(monkeypatch, capsys):
    monkeypatch.setenv("NKILIB_LOG_LEVEL", "OFF")
    monkeypatch.setenv("NKILIB_LOG_LEVEL_mine", "info")
    get_logger("other").error("hidden")
    get_logger("mine").debug("hidden")
    get_logger("mine").info("shown")
    assert capsys.readouterr().out == "[INFO] [mine] shown\n"


# --- views


CHAINS = [
    ((128, 24), lambda v: v.slice(1, 1, 100, 2).reshape_dim(1, (2, -1)), lambda t: t[:, 1::2].unflatten(1, (2, -1))),
    ((128, 4, 6), lambda v: v.flatten_dims(1, 2).expand_dim(1), lambda t: t.flatten(1, 2).unsqueeze(1)),
    ((128, 4, 6), lambda v: v.permute((0, 2, 1)).select(1, 3), lambda t: t.permute(0, 2, 1).select(1, 3)),
    ((128, 1, 8), lambda v: v.squeeze_dim(1).reshape((128, 2, 4)), lambda t: t.squeeze(1).reshape(128, 2, 4)),
    ((128, 1, 8), lambda v: v.broadcast(1, 5).slice(2, 2, 8), lambda t: t.expand(-1, 5, -1)[:, :, 2:8]),
    (
        (128, 24, 2),
        lambda v: v.rearrange(("p", ("a", "b"), "c"), ("p", "c", "b", "a"), {"a": 4}),
        lambda t: t.unflatten(1, (4, 6)).permute(0, 3, 2, 1),
    ),
]


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.hbm])
@pytest.mark.parametrize(("shape", "ours", "theirs"), CHAINS)
def test_views_are_those_of_torch(buffer, shape, ours, theirs):
    def plan():
        view, wanted = ours(TensorView(nl.ndarray(shape, nl.float32, buffer))), theirs(torch.empty(shape))
        assert view.shape == tuple(wanted.shape) and view.offset == wanted.storage_offset()
        sizes = zip(view.shape, view.strides, wanted.stride(), strict=True)
        assert all(a == b for size, a, b in sizes if size > 1)
        assert view.is_sbuf() is (buffer == nl.sbuf) and view.is_hbm() is is_hbm_buffer(view.get_view())

    traced(plan)


@pytest.mark.parametrize(
    ("buffer", "call", "message"),
    [
        (nl.hbm, lambda v: v.reshape((128, 32)), "size mismatch"),
        (nl.sbuf, lambda v: v.reshape((64, 48)), "partition dim"),
        (nl.hbm, lambda v: v.reshape_dim(1, (4, 6)).permute((0, 2, 1)).reshape((128, 24)), "non-contiguous layout"),
    ],
)
def test_shapes_that_no_view_has(buffer, call, message):
    with pytest.raises(KernelLimit, match=message):
        traced(lambda: call(TensorView(nl.ndarray((128, 24), nl.float32, buffer))))


def test_other_dtypes_and_indices_that_are_known_later():
    def plan():
        view = TensorView(nl.ndarray((128, 24), nl.float32, nl.sbuf)).slice(1, 8, 16).reinterpret_cast(nl.uint8)
        assert (view.shape, view.strides, view.offset, view.dtype) == ((128, 32), (96, 1), 32, nl.uint8)
        index = nl.ndarray((1, 1), nl.int32, nl.sbuf)
        nisa.memset(dst=index, value=3)
        later = TensorView(nl.ndarray((8, 2, 4), nl.float32, nl.hbm)).select(0, index)
        assert later.shape == (2, 4) and later.has_dynamic_access() and not view.has_dynamic_access()
        assert TensorView(later).get_dim() == 2

    traced(plan)


# --- copies between partitions


@nki.jit
def spread(x, partitions: int, column: int):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    rows = nl.ndarray((partitions, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    columns = nl.ndarray((partitions, x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    first = nl.ndarray(rows.shape, dtype=x.dtype, buffer=nl.sbuf)
    second = nl.ndarray(columns.shape, dtype=x.dtype, buffer=nl.sbuf)
    stream_shuffle_broadcast(tile, first)
    tp_broadcast(TensorView(tile), second, column)
    nisa.dma_copy(dst=rows, src=first)
    nisa.dma_copy(dst=columns, src=second)
    return rows, columns


@pytest.mark.parametrize("partitions", [1, 33, 128])
def test_one_row_or_column_goes_to_every_partition(partitions):
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    rows, columns = spread(x, partitions, 3)
    assert np.array_equal(rows, np.tile(x[0], (partitions, 1)))
    assert np.array_equal(columns, np.tile(x[:, 3], (partitions, 1)))
    with pytest.raises(KernelLimit, match="rows of src have 4 elements, those of dst 5"):
        traced(lambda: stream_shuffle_broadcast(*(nl.ndarray((2, n), nl.float32, nl.sbuf) for n in (4, 5))))


@nki.jit
def moved(x, source: int, target: int, count: int):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    src, dst = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=src, src=x)
    nisa.memset(dst=dst, value=0.0)
    cross_partition_copy(src, dst, source, target, count, x.shape[1] - 1)
    nisa.dma_copy(dst=out, src=dst)
    return out


@pytest.mark.parametrize(
    ("source", "target", "count"), [(0, 64, 32), (0, 28, 20), (5, 0, 16), (17, 100, 28), (0, 0, 128)]
)
def test_copies_between_any_partitions(source, target, count):
    x = np.arange(128 * 3, dtype=np.float32).reshape(128, 3)
    wanted = np.zeros_like(x)
    wanted[target : target + count, :2] = x[source : source + count, :2]
    assert np.array_equal(moved(x, source, target, count), wanted)
