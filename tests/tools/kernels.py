"""Kernels for the tests of the command, written to files of their own."""

from __future__ import annotations

from pathlib import Path

GOOD = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(a, times=2.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=times)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""

SEVERAL = (
    GOOD
    + """

def plain(a):
    return double(a)


@nki.jit
def two_results(a):
    return {"first": double(a), "second": double(a, 3.0)}


@nki.jit
def in_place(a):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=7.0)
    nisa.dma_copy(dst=a, src=tile)


@nki.jit
def talks(a):
    print("hello from the kernel")
    return double(a)


@nki.jit
def raises(a):
    return helper(a, 0)


def helper(a, n):
    return double(a, 1 / n)


@nki.jit
def wrong_twice(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=1.0)
    for i in range(3):
        nisa.tensor_tensor(dst=tile[:, 0:4], data1=tile[:, 0 : 5 + i], data2=tile[:, 0:4], op=nl.add)
    nisa.tensor_tensor(dst=tile, data1=a, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def wrong_and_stopped(a):
    tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=1.0)
    nisa.tensor_tensor(dst=tile[:, 0:4], data1=tile, data2=tile, op=nl.add)
    return tile


@nki.jit
def too_large(a):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = [nl.ndarray((128, 24000), dtype=nl.float32, buffer=nl.sbuf) for _ in range(4)]
    for tile in tiles:
        nisa.memset(dst=tile, value=1.0)
    for tile in tiles:
        nisa.dma_copy(dst=out, src=tile[:, 0:1])
    return out


number = 5
"""
)

SMALL = ("--arg", "a=128x8:float32")


def write(folder: Path, text: str, name: str = "kernels.py") -> str:
    """A file with kernels; its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)
