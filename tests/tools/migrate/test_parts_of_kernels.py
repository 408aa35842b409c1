"""Kernels that call others: blocks, slices and programs that are handed on, and masks that depend on the trip alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.tools.migrate.files import NEW_IMPORTS, rewritten


def test_blocks_and_slices_are_handed_on_and_masks_of_trips_are_branches(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def fill(rows, a, half):
            for i in nl.affine_range(2):
                part = nl.ds(i * 64, 64)
                rows[i, :, :] = nl.load(a[half, part, :])


        @nki.jit
        def kernel(a, causal=True):
            out = nl.ndarray((2, 128, 32), dtype=a.dtype, buffer=nl.shared_hbm)
            tiles = nl.ndarray((2, 2, nl.par_dim(64), 32), dtype=a.dtype, buffer=nl.sbuf)
            for h in nl.affine_range(2):
                fill(tiles[h], a, h)
                for i in nl.affine_range(2):
                    mask = h * 2 >= i if causal else None
                    part = nl.ds(i * 64, 64)
                    twice = nl.multiply(tiles[h, i, :, :], nl.exp(tiles[h, i, :, :], mask=mask), mask=mask)
                    # where it is
                    nl.store(out[h, part, :], value=twice)  # all of it
            return out
        """,
        "a=2x128x32",
    )
    assert not whole.text.left
    assert whole.text.new == NEW_IMPORTS + textwrap.dedent(
        """
        def fill(rows, a, half):
            for i in range(2):
                part = nl.ds(i * 64, 64)
                nisa.dma_copy(dst=rows[i], src=a[half, part])


        @nki.jit
        def kernel(a, causal=True):
            out = nl.ndarray((2, 128, 32), dtype=a.dtype, buffer=nl.shared_hbm)
            tiles = [[nl.ndarray((64, 32), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2)] for _ in range(2)]
            for h in range(2):
                fill(tiles[h], a, h)
                for i in range(2):
                    mask = h * 2 >= i if causal else True
                    part = nl.ds(i * 64, 64)
                    if mask:
                        twice = nl.multiply(tiles[h][i], nl.exp(tiles[h][i]))
                        # where it is
                        nl.store(out[h, part], twice)  # all of it
            return out
        """
    )
    assert whole.proofs.keys() == {"kernel"}
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_what_kernels_call_is_told_the_program(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def inner(a, i, scale=1.0):
            head = nl.program_id(axis=1)
            return nl.multiply(nl.load(a[head, nl.ds(i * 64, 64), :]), scale * nl.num_programs(0))


        def middle(a, i):
            return inner(a, i)


        @nki.jit
        def kernel(a):
            out = nl.ndarray((2, 128, 32), dtype=a.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                nl.store(out[nl.program_id(1), nl.ds(i * 64, 64), :], value=middle(a, i))
            return out


        kernel[1, 2](np.ones((2, 128, 32), np.float32))
        """,
    )
    assert "def inner(a, i, scale=1.0, grid=None, program_1=None):\n    head = program_1\n" in whole.text.new
    assert "    return inner(a, i, grid=grid, program_1=program_1)\n" in whole.text.new
    assert "middle(a, i, grid=grid, program_1=program_1))\n" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_what_is_left_stands_behind_the_definitions_that_it_reads(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, b=3):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            ip, i_f = nl.mgrid[0:64, 0:32]
            below = ip > i_f
            if b == 17:
                # a triangle
                nl.store(out[ip, i_f], value=nl.load(a[ip, i_f]), mask=below)
            else:
                nl.store(out[ip, i_f], value=nl.load(a[ip, i_f]))
            return out
        """,
        "a=64x32",
    )
    assert (
        textwrap.indent(
            textwrap.dedent(
                """
            if b == 17:
                # a triangle
                ip, i_f = nl.mgrid[0:64, 0:32]
                below = ip > i_f
                # nki migrate: the example arguments do not lead here
                nl.store(out[ip, i_f], value=nl.load(a[ip, i_f]), mask=below)
            else:
                nl.store(out[0:64, 0:32], nl.load(a[0:64, 0:32]))
            """
            ),
            "    ",
        )
        in whole.text.new
    )
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


ALL_REDUCE = """
@nki.jit
def kernel(a):
    out = nl.ndarray((2, 64, 32), dtype=a.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    part = nl.load(a[me])
    half = part * 0.5
    # what all have
    total = nl.all_reduce(half, op=np.add, program_axes=[me])
    nl.store(out[me], value=part / total)
    return out


kernel[{axis}](np.random.default_rng(0).random((2, 64, 32)).astype(np.float32))
"""


def test_programs_meet_between_two_loops(tmp_path: Path) -> None:
    whole = rewritten(tmp_path, ALL_REDUCE.replace("{axis}", "2"))
    assert (
        """
    part_by_program = []
    for program_0 in range(grid[0]):
        me = program_0
        part = nl.load(a[me])
        half = nl.multiply(part, 0.5)
        # what all have
        if program_0 == 0:
            total = nl.copy(half)
        else:
            nisa.tensor_tensor(dst=total, data1=total, data2=half, op=nl.add)
        part_by_program.append(part)
    for program_0 in range(grid[0]):
        me = program_0
        part = part_by_program[program_0]
        nl.store(out[me], nl.divide(part, total))
"""
        in whole.text.new
    )
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_cores_exchange_what_they_have(tmp_path: Path) -> None:
    whole = rewritten(tmp_path, ALL_REDUCE.replace("{axis}", "nl.nc(2)"))
    assert "        send_to_rank=1 - nl.program_id(0),\n" in whole.text.new
    assert "    total = nl.add(half, other)\n" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_kernels_return_behind_the_loop_over_their_programs(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, twice=False):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            more = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a[nl.program_id(0)])
            nl.store(out[nl.program_id(0)], tile)
            nl.store(more[nl.program_id(0)], tile)
            if twice:
                return out, more
            else:
                return out


        @nki.jit
        def early(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            i_p, i_f = nl.arange(64)[:, None], nl.arange(32)[None, :]
            nl.store(out[nl.program_id(0), i_p, i_f], nl.load(a[nl.program_id(0)]))
            if a.shape[0] == 2:
                return out
            nl.store(out[nl.program_id(0)], nl.load(a[0]))
            return out


        kernel[2](np.ones((2, 64, 32), np.float32), True)
        early[2](np.ones((2, 64, 32), np.float32))
        """,
    )
    assert (
        "        nl.store(more[program_0], tile)\n    if twice:\n        return out, more\n    else:\n"
        in whole.text.new
    )
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]
    (left,) = [left for left in whole.text.left if left.line == 21]
    assert f"# nki migrate: {left.reason}\n@nki.jit\ndef early" in whole.text.new
    assert "returns between other statements" in left.reason
    assert [broken.reason.partition(":")[0] for broken in whole.broken] == ["RemovedError"]
