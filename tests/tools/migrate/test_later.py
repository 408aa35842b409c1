"""Kernels in the spellings of NKI 0.2 to 0.6, the text that becomes of them, and that both give equal bits."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from nki.driver.prepare import chosen_target
from nki.tools.migrate.whole import Whole, migrate_file
from nki.tools.options import options_of
from tests.tools.running import nki

IMPORTS = """\
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

"""
HEAD = """
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)"""
TAIL = """
    nisa.dma_copy(dst=out, src=tile)
    return out
"""

BODIES = {
    "ranges": (
        """
        for i in nl.affine_range(2):  # twice
            for j in nl.static_range(0, 4, 2):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=i + j)
        """,
        """
        for i in range(2):  # twice
            for j in range(0, 4, 2):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=i + j)
        """,
    ),
    "destinations": (
        """
        largest = nisa.tensor_reduce(nl.max, tile, axis=1)  # of each row
        tile = nisa.tensor_scalar(tile, nl.subtract, largest)
        nisa.tensor_tensor(dst=tile, data1=nisa.activation(op=nl.exp, data=tile), data2=tile, op=nl.multiply)
        """,
        """
        largest = nl.ndarray((tile.shape[0], 1), dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=tile, axis=1)  # of each row
        tile_2 = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile_2, data=tile, op0=nl.subtract, operand0=largest)
        tile = tile_2
        tile_3 = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.activation(dst=tile_3, op=nl.exp, data=tile)
        nisa.tensor_tensor(dst=tile, data1=tile_3, data2=tile, op=nl.multiply)
        """,
    ),
    "loops": (
        """
        count = nisa.register_alloc(2)
        for i in nl.dynamic_range(count):
            # double it
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        for _ in nl.dynamic_range(1, 5, 2):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        left = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.memset(dst=left, value=2)
        while count:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.add, operand0=-1)
            nisa.register_load(count, left)
        """,
        """
        count = nisa.register_alloc(2)
        def body(i):
            # double it
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nl.fori_loop(0, count, body)
        def body_2(_):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nl.fori_loop(1, 5, body_2, 2)
        left = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.memset(dst=left, value=2)
        def body_3(count):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.add, operand0=-1)
            nisa.register_load(count, left)
            return count
        nl.while_loop(count, body_3)
        """,
    ),
    "arguments": (
        """
        nisa.tensor_copy(tile, tile, engine=nisa.vector_engine, dtype=nl.float32)
        width = min(tile.shape[1], nl.tile_size.psum_fmax, nl.tile_size.total_available_sbuf_size)
        nisa.dma_copy(dst=tile[:, 0:width], src=a[:, 0:width], unique_indices=True, dst_rmw_op=None, dge_mode=1)
        """,
        """
        nisa.tensor_copy(dst=tile, src=tile, engine=nisa.engine.vector)
        width = min(tile.shape[1], nl.tile_size.psum_bank_fmax, nl.tile_size.sbuf_fmax_bytes)
        nisa.dma_copy(dst=tile[:, 0:width], src=a[:, 0:width], dge_mode=nisa.dge_mode.swdge)
        """,
    ),
}


def kernel_of(body: str, decorator: str = "@nki.jit") -> str:
    inner = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"{IMPORTS}\n{decorator}\ndef kernel(a):{HEAD}\n{inner}{TAIL}"


def migrated(tmp_path: Path, text: str) -> Whole:
    path = tmp_path / "kernels.py"
    path.write_text(text)
    options = options_of()
    a = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    return migrate_file(path, {"a": a}, chosen_target("trn2", options.target, ""), options)


@pytest.mark.parametrize("name", BODIES)
def test_an_older_spelling_becomes_that_of_today_with_equal_bits(name: str, tmp_path: Path) -> None:
    old, new = BODIES[name]
    whole = migrated(tmp_path, kernel_of(old, '@nki.jit(mode="simulation")'))
    assert whole.text.new == kernel_of(new)
    assert not whole.text.left
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


REFUSED = {
    "an operation at the destination": (
        "nisa.dma_copy(dst=tile, src=a, dst_rmw_op=nl.add)",
        "nisa.dma_compute(dst=tile, srcs=[tile, a], reduce_op=nl.add)",
    ),
    "a number of a register": (
        "r = nisa.register_alloc()\nnisa.register_move(r, imm=42)",
        "r = nisa.register_alloc()\nnisa.register_move(dst=r, src=42)",
    ),
    "the name of a memory": (
        "more = nl.ndarray((64, 32), dtype=nl.int32, buffer='sbuf')\nnisa.memset(dst=more, value=2.0)",
        "more = nl.ndarray((64, 32), dtype=nl.int32, buffer=nl.sbuf)\nnisa.memset(dst=more, value=2)",
    ),
    "the last axis": (
        "deep = tile.reshape((64, 4, 8))\nless = nl.ndarray((64, 4), dtype=tile.dtype)\n"
        "nisa.tensor_reduce(dst=less, op=nl.add, data=deep, axis=1)",
        "deep = tile.reshape((64, 4, 8))\nless = nl.ndarray((64, 4), dtype=tile.dtype)\n"
        "nisa.tensor_reduce(dst=less, op=nl.add, data=deep, axis=2)",
    ),
    "bits of another dtype": (
        "bits = nl.ndarray((64, 32), dtype=nl.int32)\nnisa.dma_copy(dst=bits, src=a, dge_mode=nisa.dge_mode.hwdge)",
        "bits = nl.ndarray((64, 32), dtype=nl.int32)\n"
        "nisa.dma_copy(dst=bits, src=a.view(nl.int32), dge_mode=nisa.dge_mode.hwdge)",
    ),
    "an instruction that has another name": (
        "nisa.tensor_copy_dynamic_src(tile, tile)",
        "nisa.tensor_copy(tile, tile)",
    ),
    "a copy from PSUM by DMA": (
        "product = nl.zeros((64, 32), dtype=nl.float32, buffer=nl.psum)\nnisa.dma_copy(dst=out, src=product)",
        "product = nl.zeros((64, 32), dtype=nl.float32, buffer=nl.psum)\n"
        "tile_2 = nl.ndarray(product.shape, dtype=product.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_copy(dst=tile_2, src=product)\n"
        "nisa.dma_copy(dst=out, src=tile_2)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_todays_language_refuses_is_rewritten_and_checked(name: str, tmp_path: Path) -> None:
    old, new = REFUSED[name]
    whole = migrated(tmp_path, kernel_of(old))
    assert whole.text.new == kernel_of(new)
    assert not whole.text.left
    proof = whole.proofs["kernel"]
    assert proof.equal is None and "passes the checks, and the old one does not run" in proof.how, proof


def test_parameters_results_and_channels_are_those_of_today(tmp_path: Path) -> None:
    text = kernel_of("pass").replace("kernel(a)", "kernel(a, *, b=1)").replace("nl.shared_hbm", "nl.hbm")
    ring = "\n\ndef ring(r):\n    nki.collectives.collective_permute_implicit([[r]], [[r]], r, num_channels=2)\n"
    whole = migrated(tmp_path, text + ring)
    assert whole.text.new == kernel_of("pass").replace("kernel(a)", "kernel(a, b=1)") + ring.replace(
        "num_channels=2", "channel_ids=[0, 1]"
    )
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


LEFT = {
    "total is assigned in the loop": "total = 0\nfor i in nl.dynamic_range(2):\n    total += 1\nprint(total)",
    "has no destination": "more = [nisa.tensor_copy(tile) for _ in range(2)]",
    "is read behind the loop": """
        r = nisa.register_alloc(0)
        while r:
            nisa.register_move(r, 0)
        nisa.register_move(r, 1)
    """,
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_would_mean_something_else_stays_with_its_reason(reason: str, tmp_path: Path) -> None:
    whole = migrated(tmp_path, kernel_of(LEFT[reason]))
    assert [reason in left.reason for left in whole.text.left] == [True]
    assert f"# nki migrate: {whole.text.left[0].reason}" in whole.text.new


def test_settings_of_decorators_that_stand_somewhere_else_are_named(tmp_path: Path) -> None:
    whole = migrated(tmp_path, kernel_of("pass", '@nki.jit(platform_target="trn2", debug_kernel=True)'))
    assert '@nki.jit(platform_target="trn2")' in whole.text.new
    (left,) = whole.text.left
    assert left.line == 7 and "NEURON_PLATFORM_TARGET_OVERRIDE" in left.reason


def test_a_file_of_today_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(kernel_of("nisa.tensor_copy(tile, tile)"))
    assert "nothing to do" in nki("migrate", str(path), "--check").stderr
