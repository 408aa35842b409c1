"""The form for people."""

from __future__ import annotations

from nki.core.dtypes import bfloat16, float32, uint8
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.ir.print import readable
from nki.spec.program import Program
from tests.ir.kernels import array, dynamic_program, looped, scaled_sum, traced


def without_lines(text: str) -> list[str]:
    """Line numbers change whenever the file of the kernels does."""
    return [line.partition("  # ")[0] for line in text.splitlines()]


def test_a_small_kernel() -> None:
    text = readable(traced(scaled_sum, array(), array()))
    assert without_lines(text) == [
        "kernel scaled_sum for trn2, core 0 of 1:",
        "  %0 = input private_hbm float32[128, 64] a",
        "  %1 = input private_hbm float32[128, 64] b",
        "  %2 = alloc sbuf float32[128, 64] x",
        "  %3 = alloc sbuf float32[128, 64] y",
        "  %4 = alloc shared_hbm float32[128, 64] out",
        "  dma     dma_copy dst=x[0:128, 0:64] src=a[0:128, 0:64]",
        "  dma     dma_copy dst=y[0:128, 0:64] src=b[0:128, 0:64]",
        "  vector  tensor_scalar dst=x[0:128, 0:32] data=x[0:128, 0:32] op0=multiply operand0=0.5",
        "  vector  tensor_tensor dst=y[0:128, 0:64] data1=x[0:128, 0:64] data2=y[0:128, 0:64] op=add",
        "  dma     dma_copy dst=out[0:128, 0:64] src=y[0:128, 0:64]",
        "  return out[0:128, 0:64]",
    ]
    lines = text.splitlines()
    assert all("  # kernels.py:" in line for line in lines[3:-1])
    assert readable(traced(scaled_sum, array(), array())) == text


def test_loops_are_indented() -> None:
    assert without_lines(readable(traced(looped, array())))[2:] == [
        "  %1 = alloc shared_hbm float32[128, 64] out",
        "  for r2 in range(0, 4, 2):",
        "    for r3 in range(r2, r0, 1):",
        "      %2 = alloc sbuf float32[128, 16] tile",
        "      dma     dma_copy dst=tile[0:128, 0:16] src=a[0:128, 0:16]",
        "      vector  tensor_scalar dst=tile[0:128, 0:16] data=tile[0:128, 0:16] op0=add operand0=1.0",
        "      dma     dma_copy dst=out[0:128, 16:32] src=tile[0:128, 0:16]",
        "    dma     dma_copy dst=out[0:128, 0:16] src=a[0:128, 0:16]",
        "  while r1 != 0:",
        "    dma     dma_copy dst=out[0:128, 0:16] src=a[0:128, 0:16]",
        "  dma     dma_copy dst=out[0:128, 32:64] src=a[0:128, 32:64]",
        "  return out[0:128, 0:64]",
    ]


def test_dynamic_views() -> None:
    line = without_lines(readable([dynamic_program()]))[6]
    assert "src=a[0:128, 0:64] scalar_offset(r1, 128)" in line
    assert "dst=x[0:128, 0:64] vector_offset(x[0:1, 3:4] scalar_offset(x[0:1, 3:4], 1), -2)" in line


def shown(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: object = float32) -> str:
    buffer = Buffer(0, "t", MemoryRegion.sbuf, (8, 4, 6), float32)
    view = View(buffer, dtype, shape, strides, offset)  # type: ignore[arg-type]
    program = Program("k", "trn2", 0, 1, inputs=[buffer], outputs=[view])
    return readable([program]).splitlines()[-1].removeprefix("  return ")


def test_views_are_slices_where_they_can() -> None:
    assert shown((8, 4, 6), (24, 6, 1), 0) == "t[0:8, 0:4, 0:6]"
    assert shown((8, 2, 3), (24, 12, 2), 1) == "t[0:8, 0:3:2, 1:6:2]"
    assert shown((8, 6), (24, 1), 12) == "t[0:8, 2, 0:6]"
    assert shown((8, 4), (24, 6), 5) == "t[0:8, 0:4, 5]"
    assert shown((8, 24), (24, 1), 0) == "t@0[8:24, 24:1]"
    assert shown((8, 4, 5), (24, 6, 0), 0) == "t@0[8:24, 4:6, 5:0]"
    assert shown((8, 4, 12), (48, 12, 1), 0, bfloat16) == "t[0:8, 0:4, 0:12] as bfloat16"
    assert shown((1, 1, 24), (96, 24, 1), 96, uint8) == "t[1:2, 0:1, 0:24] as uint8"


def test_buffers_of_one_name_are_told_apart() -> None:
    buffers = [Buffer(i, "t", MemoryRegion.sbuf, (2, 2), float32) for i in (4, 5)]
    outputs = [View(buffer, float32, (2, 2), (2, 1), 0) for buffer in buffers]
    text = readable([Program("k", "trn2", 0, 1, inputs=buffers, outputs=outputs)])
    assert text.splitlines()[-1] == "  return t%4[0:2, 0:2], t%5[0:2, 0:2]"
