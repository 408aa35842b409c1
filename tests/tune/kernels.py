"""Kernels that the tests tune, in a module that other processes can import."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

TILES = (128, 256, 512, 1024, 2048)
FACTOR = 2.0


def scale(a: Any, tile: int = 256, fault: str = "") -> Any:
    """Twice `a`, tile by tile; `fault` makes it wrong in one of several ways."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    if fault == "raises":
        raise ZeroDivisionError("no such tile")
    if fault == "exits":
        raise SystemExit(3)
    for start in range(0, a.shape[1], tile):
        part = nl.ndarray((128, tile), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=a[:, start : start + tile])
        factor = 3.0 if fault == "value" and start == 0 else FACTOR
        nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[:, start : start + tile], src=part)
    if fault == "writes":
        nisa.dma_copy(dst=a[:, 0:128], src=out[:, 0:128])
    return (out, out) if fault == "tree" else out


def in_place(a: Any, tile: int = 256) -> None:
    """Twice `a`, into `a`."""
    for start in range(0, a.shape[1], tile):
        part = nl.ndarray((128, tile), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=a[:, start : start + tile])
        nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=a[:, start : start + tile], src=part)


tuned = nki.autotune(configs=[{"tile": tile} for tile in TILES])(nki.jit(scale))
