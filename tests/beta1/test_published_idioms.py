"""What published kernels use beside the documents: functions of the old compiler, and numbers of run time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import nki.beta1 as nki
import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.errors import Beta1Error
from nki.beta1.frameworks import nki_call
from nki.beta1.served import serve
from nki.frontend.host import ShapeDtype
from nki.runtime import run_ranks


@pytest.fixture(autouse=True)
def neuronxcc() -> Iterator[None]:
    kept, finders = dict(sys.modules), list(sys.meta_path)
    serve()
    yield
    for name in [each for each in sys.modules if each.partition(".")[0] == "neuronxcc"]:
        del sys.modules[name]
    sys.modules.update({name: kept[name] for name in kept if name.partition(".")[0] == "neuronxcc"})
    sys.meta_path[:] = finders


def test_cores_exchange_tiles_and_add_up_what_both_stored() -> None:
    from neuronxcc.nki._private.private_api import core_barrier, sendrecv, vnc

    @nki.jit
    def halves(a):
        programs, program = nl.num_programs(axes=0), nl.program_id(axis=0)
        out = nl.ndarray((2, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        own = nl.load(a[:, nl.ds(program * 64, 64)])
        other = nl.zeros(own.shape, dtype=own.dtype)
        sendrecv(send_to_rank=(1 - program), recv_from_rank=(1 - program), src=own, dst=other, pipe_id=1)
        nl.store(out[program], other)
        core_barrier(out, tuple(range(programs)))
        nisa._tiled_offloaded_fma(out[0], out[1], dst=total, scales=[1.0, 1.0])
        return out, total

    a = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32)
    out, total = halves[vnc(2)](a)
    np.testing.assert_array_equal(out, np.stack([a[:, 64:], a[:, :64]]))
    np.testing.assert_array_equal(total, a[:, 64:] + a[:, :64])


def test_other_functions_are_refused_by_name() -> None:
    with pytest.raises(ImportError, match=r"private_api.cc_div does not exist"):
        from neuronxcc.nki._private.private_api import cc_div  # noqa: F401
    assert not hasattr(importlib.import_module("neuronxcc.nki._private.private_api"), "__wrapped__")


@nki.jit
def in_places(new, at):
    """Columns of a cache that a tile names."""
    cache = nl.ndarray((2, 64, 128), dtype=new.dtype, buffer=nl.shared_hbm)
    for block in nl.static_range(2):
        nl.store(cache[block], nl.zeros((64, 128), new.dtype))
    places, p, f = nl.load(at), nl.arange(64)[:, None], nl.arange(8)[None, :]
    for block in nl.affine_range(2):
        nl.store(cache[block][p, f + places[0, block]], nl.load(new[block]))
    return cache


def test_trips_that_write_at_indices_of_run_time_break_no_promise_that_can_be_seen() -> None:
    new = np.random.default_rng(0).standard_normal((2, 64, 8)).astype(np.float32)
    found = in_places(new, np.array([[3, 50]], np.int32))
    wanted = np.zeros((2, 64, 128), np.float32)
    wanted[0, :, 3:11], wanted[1, :, 50:58] = new
    np.testing.assert_array_equal(found, wanted)


def added_by_programs(a, b, out):
    at = nl.program_id(0) * 64 + nl.arange(64)[:, None]
    columns = nl.arange(32)[None, :]
    nl.store(out[at, columns], nl.load(a[at, columns]) + nl.load(b[at, columns]))


def test_nki_call_launches_a_kernel_as_it_is_launched() -> None:
    a = np.random.default_rng(0).standard_normal((128, 32)).astype(np.float32)
    like, kernel = ShapeDtype(a.shape, nl.float32), nki.jit(added_by_programs, platform_target="trn1")
    for launched in (nki_call(kernel[2], a, a, out_shape=like), nki_call(kernel, a, a, grid=2, out_shape=[like])[0]):
        np.testing.assert_array_equal(launched, a + a)


@nki.jit
def expert(weights, x, start, ids):
    """What blocks of experts do: 200 rows of a product in tiles of 128, and a bias that is cast in each trip."""
    summed, rows = weights.shape
    columns = x.shape[1]
    out = nl.ndarray((256, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    moved = nl.ndarray((2, 64, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    w, tile, bias, first = nl.load(weights), nl.load(x), nl.load(start), nl.load(start)
    for i in nl.affine_range(2):
        at = nl.arange(128)[None, :] + 128 * i
        part = nl.zeros((nl.par_dim(128), columns), nl.float32, buffer=nl.psum)
        stationary = w[nl.arange(summed)[:, None], at] if i == 0 else w[nl.arange(summed)[:, None], at][at < rows]
        part[0:128, 0:columns] += nisa.nc_matmul(stationary, tile, mask=at < rows)
        bias = nl.copy(bias, dtype=nl.float32)
        nl.store(out[nl.ds(i * 128, 128)], nl.add(part, bias[0, 0].broadcast_to((128, columns))))
        nl.store(moved[i], nl.load_transpose2d(x[nl.arange(16)[:, None] + first[0, 0], nl.arange(64)[None, :]]))
    kept = nl.load(ids[nl.arange(64)[:, None] + nl.arange(1)[None, :]], mask=nl.arange(64)[:, None] < 60)
    count = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(count, nisa.tensor_partition_reduce(np.add, kept))
    return out, moved, count


@pytest.mark.parametrize("columns", [128, 192])
def test_masks_of_the_stationary_tile_and_transposes_from_a_row_of_run_time(columns: int) -> None:
    """The mask has the shape of the moving tile's columns as well, where there are 128."""
    random = np.random.default_rng(0)
    w, x = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((64, 200), (64, columns)))
    ids = random.integers(0, 9, (64, 1)).astype(np.float32)
    arrays = w, x, np.array([[7]], np.int32), ids
    out, moved, count = expert(*arrays)
    np.testing.assert_array_equal(out[:200], w.T @ x + 7)
    np.testing.assert_array_equal(moved, [x[7:23, :64].T] * 2)
    np.testing.assert_array_equal(count, [[ids[:60].sum()]])
    np.testing.assert_array_equal(out[:200], expert.simulated()(*arrays)[0][:200])


def test_ranks_meet_in_the_collectives_of_the_old_compiler() -> None:
    from neuronxcc.nki import nccl

    @nki.jit
    def meeting(a):
        groups, pairs = [[0, 1]], [(0, 1), (1, 0)]
        own = nl.ndarray((1, 8, 16), dtype=a.dtype, buffer=nl.hbm)
        nisa._tiled_offloaded_memcpy(dst=own[0], src=a)
        total, other = (nl.ndarray((1, 8, 16), dtype=a.dtype, buffer=nl.shared_hbm) for _ in range(2))
        both = nl.ndarray((1, 16, 16), dtype=a.dtype, buffer=nl.shared_hbm)
        part = nl.ndarray((1, 4, 16), dtype=a.dtype, buffer=nl.shared_hbm)
        nccl.all_reduce(op=np.add, srcs=[own], dsts=[total], replica_groups=groups, dtype=a.dtype)
        nccl.all_gather(op=np.add, srcs=[own], dsts=[both], replica_groups=groups, all_gather_dim=1, dtype=a.dtype)
        nccl.reduce_scatter(op=np.max, srcs=[own], dsts=[part], replica_groups=groups, reduce_scatter_dim=1)
        nccl.collective_permute(src=own[0, :, :], dst=other[0, :, :], source_target_pairs=pairs)
        return total, both, part, other

    a = np.random.default_rng(0).standard_normal((2, 1, 8, 16)).astype(np.float32)
    for rank, (total, both, part, other) in enumerate(run_ranks(meeting, [[each[0]] for each in a])):
        np.testing.assert_array_equal(total, a[0] + a[1])
        np.testing.assert_array_equal(both[0], a.reshape(16, 16))
        np.testing.assert_array_equal(part, a.max(0)[:, rank * 4 : rank * 4 + 4])
        np.testing.assert_array_equal(other, a[1 - rank])


def test_a_collective_of_a_dimension_behind_others_is_refused() -> None:
    from neuronxcc.nki import nccl

    @nki.jit
    def gathered(a):
        both = nl.ndarray((8, 32), dtype=a.dtype, buffer=nl.shared_hbm)
        nccl.all_gather(srcs=[a], dsts=[both], replica_groups=[[0, 1]], all_gather_dim=1)
        return both

    with pytest.raises(Beta1Error, match=r"'nccl.all_gather' of dimension 1 of .*a\[8, 16\]"):
        gathered(np.zeros((8, 16), np.float32))
