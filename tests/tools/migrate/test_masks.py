"""Masks of old kernels as slices, branches, rows and predicates of today."""

from __future__ import annotations

from pathlib import Path

from tests.tools.migrate.files import rewritten


def test_masks_meet_and_patterns_are_cut_where_shapes_differ_from_trip_to_trip(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            rows, columns = a.shape
            out = nl.ndarray((rows - 1, columns), dtype=a.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range((rows + 63) // 64):
                i_p, i_k, i_f = nl.mgrid[0:64, 0:2, 0:columns]
                tile = nl.load(a[i * 64 + i_p + i_k, i_f], mask=(i * 64 + i_p < rows - 1))
                low, high = nl.mgrid[0:64, 0:columns]
                pairs = nl.max(tile[i_p, i_k, i_f], axis=[1], mask=(i * 64 + i_p < rows))
                nl.store(out[i * 64 + low, high], value=pairs, mask=(i * 64 + low < rows - 1))
            return out
        """,
        "a=80x32",
    )
    assert not whole.text.left
    pattern = "[[a.shape[1], p_size], [a.shape[1], 2], [1, columns]], offset=i * a.shape[1] * 64"
    assert f"        tile = nl.load(a.ap({pattern}))" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_comparison_of_indices_that_chooses_is_a_tile(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            keep = nl.arange(64)[:, None] >= nl.arange(32)[None, :]
            nl.store(out, value=nl.where(keep, tile, -9984.0))
            return out
        """,
        "a=64x32",
    )
    assert not whole.text.left
    assert "nisa.iota(dst=position, pattern=[[-1, 32]], channel_multiplier=1)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_masks_that_join_axes_are_rows_and_predicates(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            ip = nl.arange(64)[:, None]
            i_f = nl.arange(48)[None, :]
            nl.store(out, value=nl.load(a))
            some = nl.load(a[ip, i_f], mask=(ip + i_f < 70))  # a triangle
            more = nl.add(some, 1.0, mask=(ip + i_f < 70))
            nl.store(out[ip, i_f], value=more, mask=(ip + i_f < 70))
            tile = nl.zeros((64, 48), dtype=nl.float32)
            tile[ip, i_f] = nl.copy(nl.load(a), mask=(2 * ip - i_f >= 3))
            nl.store(out[ip, i_f], value=tile * 2.0, mask=(i_f >= ip))
            return out
        """,
        "a=64x48",
    )
    assert not whole.text.left
    assert (
        """
    for row_2 in range(64):
        f_size_2 = min(48, 70 - row_2)
        if f_size_2 > 0:
            nl.store(out[row_2:row_2 + 1, 0:f_size_2], more[row_2:row_2 + 1, 0:f_size_2])
"""
        in whole.text.new
    )
    assert "predicate=nl.greater_equal(position, 0, dtype=nl.uint8)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_condition_of_loop_variables_is_a_branch_and_results_are_as_large_as_what_is_left(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            ones = nl.ones((64, 32), dtype=nl.float32)
            last = nl.zeros((64, 1), dtype=nl.float32)
            i_p, i_f = nl.mgrid[0:64, 0:32]
            for i in nl.sequential_range(2):
                mask = i * 32 + i_f < a.shape[1]
                part = nl.load(a[i_p, i * 32 + i_f], mask=mask)
                total = nisa.tensor_tensor_scan(ones, part, last, op0=np.multiply, op1=np.add, mask=mask)
                nl.store(out[i_p, i * 32 + i_f], value=total, mask=mask)
                last[:, :] = nl.copy(total[:, 31], mask=i + 1 < 2)
            return out
        """,
        "a=64x50",
    )
    assert not whole.text.left
    assert "total = nl.ndarray((ones.shape[0], f_size), dtype=ones.dtype, buffer=nl.sbuf)" in whole.text.new
    assert "        if i + 1 < 2:\n" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_sum_under_a_mask_that_joins_axes_is_copied_to_where_it_is_true(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, chosen):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            ip, i_f = nl.mgrid[0:64, 0:32]
            tile[ip, i_f] += nl.exp(tile[ip, i_f], mask=ip + i_f < 40)
            nisa.tensor_copy_predicated(dst=tile, src=nl.load(a) * 2, predicate=nl.load(chosen))
            tile[5, 3] = 7.0
            nl.store(out, value=tile)
            return out


        kernel(np.ones((64, 32), np.float32), np.eye(64, 32) > 0)
        """,
    )
    assert not whole.text.left
    assert "src=nl.add(tile[0:64, 0:32], nl.exp(tile[0:64, 0:32])),\n        predicate=" in whole.text.new
    assert "predicate=nl.load(chosen).view(nl.uint8)" in whole.text.new
    assert "    nisa.dma_copy(dst=tile[5:6, 3:4], src=number)\n" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_products_of_what_masks_left_are_as_large_as_that(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray((64, 96), dtype=a.dtype, buffer=nl.shared_hbm)
            i_k, i_m, i_n = nl.arange(128)[:, None], nl.arange(64)[None, :], nl.arange(64)[None, :]
            for j in nl.affine_range(2):
                total = nl.zeros((64, 64), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(2):
                    left = nl.load(a[k * 128 + i_k, i_m], mask=k * 128 + i_k < 200)
                    right = nl.load(b[k * 128 + i_k, j * 64 + i_n], mask=(k * 128 + i_k < 200) & (j * 64 + i_n < 96))
                    total += nisa.nc_matmul(left, right)
                held = nl.copy(total, dtype=a.dtype)
                nl.store(out[nl.arange(64)[:, None], j * 64 + i_n], value=held, mask=j * 64 + i_n < 96)
            return out
        """,
        "a=200x64, b=200x96",
    )
    assert not whole.text.left
    assert "        total = nl.zeros((64, 64), dtype=nl.float32, buffer=nl.psum)\n" in whole.text.new
    assert "nisa.nc_matmul(dst=total[:, 0:f_size], stationary=left, moving=right)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]
