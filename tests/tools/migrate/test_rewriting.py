"""Old kernels, the text that becomes of them, and that both give equal bits."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from nki.tools.migrate.problems import RUN_TIME
from tests.tools.migrate.files import NEW_IMPORTS, rewritten

CASES = {
    "slices": (
        """
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            ip = nl.arange(128)[:, None]
            i_f = nl.arange(64)[None, :]
            for i in nl.affine_range(a.shape[1] // 64):  # each column
                # a sum
                left = nl.load(a[ip, i * 64 + i_f])
                right = nl.load(b[ip, i * 64 + i_f])
                nl.store(out[ip, i * 64 + i_f], value=(left + right) * 2)
            return out
        """,
        """
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            for i in range(a.shape[1] // 64):  # each column
                # a sum
                left = nl.load(a[0:128, nl.ds(i * 64, 64)])
                right = nl.load(b[0:128, nl.ds(i * 64, 64)])
                nl.store(out[0:128, nl.ds(i * 64, 64)], nl.multiply(nl.add(left, right), 2))
            return out
        """,
        "a=128x128, b=128x128",
    ),
    "masks": (
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            rows, columns = a.shape
            ip, i_f = nl.mgrid[0:128, 0:columns]
            for i in nl.affine_range((rows + 127) // 128):
                tile = nl.load(a[i * 128 + ip, i_f], mask=(i * 128 + ip < rows))
                total = nl.sum(tile, axis=1)
                nl.store(out[i * 128 + ip, i_f], value=tile / total, mask=(i * 128 + ip < rows))
            return out
        """,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            rows, columns = a.shape
            for i in range((rows + 127) // 128):
                p_size = min(128, rows - i * 128)
                tile = nl.load(a[nl.ds(i * 128, p_size), 0:columns])
                total = nl.sum(tile, axis=1)
                nl.store(out[nl.ds(i * 128, p_size), 0:columns], nl.divide(tile, total))
            return out
        """,
        "a=200x64",
    ),
    "blocks": (
        """
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            lefts = nl.ndarray((2, nl.par_dim(128), 128), dtype=a.dtype, buffer=nl.sbuf)
            i_a = nl.mgrid[0:128, 0:128]
            i_b = nl.mgrid[0:128, 0:64]
            for k in nl.affine_range(2):
                lefts[k, i_a.p, i_a.x] = nl.load(a[k * 128 + i_a.p, i_a.x])
            product = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                right = nl.load(b[k * 128 + i_b.p, i_b.x])
                product += nl.matmul(lefts[k, i_a.p, i_a.x], right, transpose_x=True)
            nl.store(out, nl.copy(product))
            return out
        """,
        """
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            lefts = [nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2)]
            for k in range(2):
                nisa.dma_copy(dst=lefts[k], src=a[nl.ds(k * 128, 128), 0:128])
            product = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
            for k in range(2):
                right = nl.load(b[nl.ds(k * 128, 128), 0:64])
                nisa.nc_matmul(dst=product, stationary=lefts[k], moving=right)
            nl.store(out, nl.copy(product))
            return out
        """,
        "a=256x128, b=256x64",
    ),
    "instructions": (
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            largest = nisa.tensor_reduce(np.max, data=tile, axis=[1], negate=True)
            power = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
            power[...] = nisa.activation(op=np.exp, data=tile, bias=largest, scale=1.0)
            scaled = nisa.tensor_scalar(power, np.multiply, 2.0)
            nl.store(out, value=scaled)
            return out
        """,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            largest = nl.ndarray((tile.shape[0], 1), dtype=tile.dtype, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=largest, op=nl.maximum, data=tile, axis=[1], negate=True)
            power = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=power, op=nl.exp, data=tile, bias=largest, scale=1.0)
            scaled = nl.ndarray(power.shape, dtype=power.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scaled, data=power, op0=nl.multiply, operand0=2.0)
            nl.store(out, scaled)
            return out
        """,
        "a=128x64",
    ),
    "programs": (
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            ip = nl.program_id(0) * 128 + nl.arange(128)[:, None]
            i_f = nl.arange(64)[None, :]
            nl.store(out[ip, i_f], value=nl.exp(nl.load(a[ip, i_f])))
            return out


        if __name__ == "__main__":
            kernel[2](np.ones((256, 64), np.float32))
        """,
        """
        @nki.jit
        def kernel(a, grid):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            for program_0 in range(grid[0]):
                nl.store(out[nl.ds(program_0 * 128, 128), 0:64], nl.exp(nl.load(a[nl.ds(program_0 * 128, 128), 0:64])))
            return out


        if __name__ == "__main__":
            kernel(np.ones((256, 64), np.float32), grid=(2,))
        """,
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_becomes_one_of_today_with_equal_bits(name: str, tmp_path: Path) -> None:
    old, new, given = CASES[name]
    whole = rewritten(tmp_path, old, given)
    assert whole.text.new == NEW_IMPORTS + textwrap.dedent(new)
    assert not whole.text.left
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_what_cannot_be_rewritten_stays_with_its_reason(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            ip = nl.arange(64)[:, None]
            i_f = nl.arange(64)[None, :]
            nl.store(out[ip, i_f], value=nl.load(a[ip, i_f]), mask=(ip != 3))  # all rows but one
            return out
        """,
        "a=64x64",
    )
    (left,) = whole.text.left
    assert left.line == 12
    assert "single positions" in left.reason
    assert f"    # nki migrate: {left.reason}\n    nl.store(out[ip, i_f], value=nl.load(a[ip, i_f])" in whole.text.new
    assert "ip = nl.arange(64)[:, None]" in whole.text.new
    assert not whole.proofs["kernel"].equal


def test_indices_of_run_time_and_of_several_axes_become_views(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.shared_hbm)
            rows = nisa.iota(2 * nl.arange(64)[:, None], dtype=nl.int32)
            chosen = nl.load(a[rows, nl.arange(64)[None, :]])
            i_0, i_1, i_2 = nl.mgrid[0:64, 0:32, 0:2]
            pairs = nl.max(chosen[i_0, 2 * i_1 + i_2], axis=[2])
            nl.store(out, pairs)
            return out
        """,
        "a=128x64",
    )
    assert not whole.text.left
    assert "chosen = nl.load(a.vector_select(0, rows))" in whole.text.new
    assert "nl.max(chosen.ap([[chosen.shape[1], 64], [2, 32], [1, 2]]), axis=[2])" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_operators_of_numpy_and_tiles_that_are_returned_become_those_of_today(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, op):
            left: nl.ndarray = nl.load(a)
            left = nisa.tensor_scalar(left, op, 2.0)
            i_p, i_f = nl.arange(128)[:, None], nl.arange(64)[None, :]
            best = nisa.max8(src=left[i_p, i_f], mask=i_f < 32)
            return best


        kernel(np.ones((128, 64), np.float32), np.multiply)
        """,
    )
    assert not whole.text.left
    assert "kernel(np.ones((128, 64), np.float32), nl.multiply)" in whole.text.new
    assert "    result = nl.ndarray(best.shape, dtype=best.dtype, buffer=nl.shared_hbm)\n" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_indices_that_a_tile_holds_move_accesses_and_choose_rows(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            where = nisa.iota(3 * nl.arange(4)[None, :], dtype=nl.int32)
            ip, i_f = nl.mgrid[0:64, 0:32]
            part = nisa.tensor_copy_dynamic_src(tile[ip, where[0, 2] + i_f])
            nl.store(out, part)
            rows = nisa.memset((64, 1), 5, dtype=nl.int32)
            nl.atomic_rmw(out[rows, nl.arange(32)[None, :]], value=part, op=np.add)
            return out
        """,
        "a=64x128",
    )
    assert not whole.text.left
    assert (
        "src=tile.ap([[tile.shape[1], 64], [1, 32]], scalar_offset=where[0:1, 2:3], indirect_dim=1)" in whole.text.new
    )
    assert (
        "    for row in range(part.shape[0]):\n        place = out.vector_select(0, rows[row:row + 1, 0:1])"
        in whole.text.new
    )
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_sum_of_products_that_are_transposed_first_begins_with_zeros(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.shared_hbm)
            total = nl.zeros((64, 32), dtype=nl.float32, buffer=nl.psum)
            for _ in nl.affine_range(2):
                total += nl.matmul(nl.load(a), nl.load(b))
            nl.store(out, value=total)
            return out
        """,
        "a=64x128, b=128x32",
    )
    assert "total = nl.zeros((64, 32), dtype=nl.float32, buffer=nl.psum)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_places_that_have_a_name_in_the_file_are_left_to_the_compiler(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        alloc = nki.compiler.sbuf.alloc


        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.ndarray((nl.par_dim(64), 32), dtype=a.dtype, buffer=nki.compiler.sbuf.mod_alloc(base_addr=0))
            tile[...] = nl.load(a)
            nl.store(out, value=tile)
            return out
        """,
        "a=64x32",
    )
    assert "alloc" not in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_one_of_two_index_expressions_is_chosen_where_it_is_written(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, half=True):
            out = nl.ndarray((32, 16), dtype=a.dtype, buffer=nl.shared_hbm)
            i_p, i_f = nl.arange(32)[:, None], nl.arange(16)[None, :]
            rows = i_p if half else i_p * 2
            nl.store(out[i_p, i_f], value=nl.load(a[rows, i_f]))
            return out
        """,
        "a=64x16",
    )
    assert not whole.text.left
    assert "(1 if half else 2)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_shape_that_is_a_sum_of_lists_has_blocks(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray([2] + list(a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
            both = nl.ndarray([2] + [nl.par_dim(64), 32], dtype=a.dtype, buffer=nl.sbuf)
            for i in nl.affine_range(2):
                both[i] = nl.load(a)
                nl.store(out[i], value=both[i])
            return out
        """,
        "a=64x32",
    )
    assert "both = [nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2)]" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_tiles_between_have_the_dtype_of_what_they_hold_whatever_that_is(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, half=True):
            out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(a, dtype=nl.bfloat16 if half else nl.float32)
            if not half:
                tile = tile * 2
            turned = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf)
            turned[...] = nisa.nc_transpose(tile[:, 0:32])
            nl.store(out, value=turned)
            return out
        """,
        "a=64x32",
    )
    assert not whole.text.left
    assert "dtype=tile.dtype, buffer=nl.psum)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_an_operand_in_psum_is_copied_for_instructions_that_read_none(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.load(a)
            product = nisa.nc_matmul(tile, tile)
            below = nl.arange(64)[:, None] >= nl.arange(64)[None, :]
            nl.store(out, value=nisa.affine_select(below, on_true_tile=product, on_false_value=0.0))
            return out
        """,
        "a=64x64",
    )
    assert "on_true_tile=nl.copy(product)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_files_with_numbers_of_run_time_stay_as_they_are(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        from neuronxcc.nki.typing import scalar

        @nki.jit
        def kernel(a, n):
            out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
            for i in nl.sequential_range(scalar(n)):
                nl.store(out, value=nl.load(a[i]))
            return out
        """,
    )
    assert whole.text.new == whole.text.old
    assert [(left.line, left.reason) for left in whole.text.left] == [(12, RUN_TIME)]
