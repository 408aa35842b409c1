"""A kernel for every rule of the advice that it finds fault with, and one that does the same work without the fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nki.isa as nisa
import nki.language as nl
from tests.profiling.support import array, hbm, loaded, psum, sbuf, stored

BF16 = nl.bfloat16


class Case(NamedTuple):
    bad: tuple[Callable[..., Any], tuple[Any, ...]]
    good: tuple[Callable[..., Any], tuple[Any, ...]]
    target: str = "trn2"


def _adds(held: Callable[[tuple[int, int]], Any]) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x, y, total = loaded(a), held((128, 512)), sbuf((128, 512))
        nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
        for _ in range(40):
            nisa.tensor_tensor(dst=y, data1=x, data2=y, op=nl.add)
        nisa.tensor_scalar(dst=total, data=y, op0=nl.add, operand0=1.0)
        return stored(total)

    return kernel


def _products(a: Any, b: Any) -> Any:
    x, w = loaded(a), loaded(b)
    out = psum((128, 512))
    for _ in range(40):
        nisa.nc_matmul(dst=out, stationary=w, moving=x, accumulate=True)
    tile = sbuf((128, 512))
    nisa.tensor_copy(dst=tile, src=out)
    return stored(tile)


def _strided(step: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x = loaded(a)
        y = sbuf((128, 512))
        for _ in range(30):
            nisa.activation(dst=y, op=nl.exp, data=x.ap([[16384, 128], [step, 512]]))
        return stored(y)

    return kernel


def _rows(rows: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x = loaded(a)
        y = sbuf(x.shape)
        for _ in range(30):
            nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)
        return stored(y)

    kernel.__name__ = f"rows_{rows}"
    return kernel


def _scaled(again: bool) -> Callable[..., Any]:
    """Sums of products; one factor of each is the same product every time."""

    def kernel(a: Any) -> Any:
        x, total, kept = loaded(a), sbuf(a.shape), sbuf(a.shape)
        nisa.memset(dst=total, value=0.0)
        nisa.tensor_tensor(dst=kept, data1=x, data2=x, op=nl.multiply)
        for number in range(10):
            if again:
                kept = sbuf(a.shape)
                nisa.tensor_tensor(dst=kept, data1=x, data2=x, op=nl.multiply)
            scaled = sbuf(a.shape)
            nisa.tensor_scalar(dst=scaled, data=kept, op0=nl.multiply, operand0=number + 1.0)
            nisa.tensor_tensor(dst=total, data1=total, data2=scaled, op=nl.add)
        return stored(total)

    return kernel


def _long(a: Any) -> Any:
    x = loaded(a)
    for _ in range(8):
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    return stored(x)


def _short(a: Any) -> Any:
    x = loaded(a)
    for start in range(0, 2048, 8):
        nisa.tensor_scalar(dst=x[:, start : start + 8], data=x[:, start : start + 8], op0=nl.add, operand0=1.0)
    return stored(x)


def _on(engine: Any) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x, y = loaded(a), sbuf((128, 512))
        for _ in range(10):
            nisa.tensor_copy(dst=y, src=x, engine=engine)
            nisa.tensor_copy(dst=x, src=y, engine=engine)
        return stored(x)

    return kernel


def _activations(grouped: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        x, y = loaded(a), sbuf((128, 512))
        functions = [nl.exp] * 10 + [nl.tanh] * 10 if grouped else [nl.exp, nl.tanh] * 10
        for function in functions:
            nisa.activation(dst=y, op=function, data=x)
            nisa.activation(dst=x, op=function, data=y)
        return stored(x)

    return kernel


def _pausing(pauses: bool) -> Callable[..., Any]:
    def kernel(a: Any, b: Any) -> Any:
        x, w = loaded(a), loaded(b)
        tile = sbuf((128, 512), BF16)
        for _ in range(8 if pauses else 1):
            out = psum((128, 512))
            for _ in range(12 if pauses else 60):
                nisa.nc_matmul(dst=out, stationary=w, moving=x, accumulate=True)
            nisa.activation(dst=tile, op=nl.exp, data=out)
            for _ in range(8):
                nisa.activation(dst=tile, op=nl.exp, data=tile)
            nisa.tensor_copy(dst=x, src=tile)
        return stored(tile)

    return kernel


def _one_bank(shared: bool) -> Callable[..., Any]:
    """Vector and Scalar take turns on a PSUM bank that both use."""

    def kernel(a: Any) -> Any:
        x, y, z = loaded(a), sbuf((128, 256)), sbuf((128, 256))
        bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=bank[:, 0:256], src=x)
        nisa.tensor_copy(dst=bank[:, 256:512], src=x)
        nisa.tensor_copy(dst=other[:, 256:512], src=x)
        for _ in range(30):
            nisa.tensor_scalar(dst=y, data=bank[:, 0:256], op0=nl.add, operand0=1.0)
            nisa.activation(dst=z, op=nl.exp, data=(bank if shared else other)[:, 256:512])
        nisa.tensor_tensor(dst=y, data1=y, data2=z, op=nl.add)
        return stored(y)

    return kernel


def _buffers(count: int) -> Callable[..., Any]:
    """Tiles at fixed addresses, so that the allocator does not take turns by itself."""

    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        tiles = [sbuf((128, 1024)) for _ in range(count)]
        for number in range(8):
            x = tiles[number % count]
            nisa.dma_copy(dst=x, src=a[number])
            for _ in range(2):
                nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[number], src=x)
        return out

    return kernel


def _serial(pieces: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        size = a.shape[1] // pieces
        for start in range(0, a.shape[1], size):
            x = loaded(a[:, start : start + size])
            for _ in range(4):
                nisa.activation(dst=x, op=nl.exp, data=x)
            nisa.dma_copy(dst=out[:, start : start + size], src=x)
        return out

    return kernel


def _looped(device: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        total = loaded(a)

        def trip(_: Any) -> None:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)

        if device:
            nl.fori_loop(0, 50, trip)
        else:
            for number in range(50):
                trip(number)
        return stored(total)

    return kernel


def _loads(transposed: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        total = sbuf((128, 128))
        nisa.memset(dst=total, value=0.0)
        for number in range(4):
            x = sbuf((128, 128))
            piece = a[number]
            nisa.dma_copy(dst=x, src=piece.ap([[1, 128], [128, 128]]) if transposed else piece)
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)
        return stored(total)

    return kernel


def _copies(pieces: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        size = a.shape[1] // pieces
        for start in range(0, a.shape[1], size):
            nisa.dma_copy(dst=out[:, start : start + size], src=loaded(a[:, start : start + size]))
        return out

    return kernel


def _again(kept: bool) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        total, x = sbuf((128, 4096), BF16), loaded(a)
        nisa.memset(dst=total, value=0.0)
        for _ in range(6):
            x = x if kept else loaded(a)
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)
        return stored(total)

    return kernel


def _in_steps(fused: bool) -> Callable[..., Any]:
    """Exponentials of parts of a tile, and their sums."""

    def kernel(a: Any) -> Any:
        x, totals = loaded(a), sbuf((128, 10))
        for number in range(10):
            part, result, total = sbuf((128, 1024)), sbuf((128, 1024)), totals[:, nl.ds(number, 1)]
            if fused:
                nisa.activation(
                    dst=result, op=nl.exp, data=x, scale=0.1 * number,
                    reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce,
                )  # fmt: skip
            else:
                nisa.tensor_scalar(dst=part, data=x, op0=nl.multiply, operand0=0.1 * number)
                nisa.activation(dst=result, op=nl.exp, data=part)
                nisa.tensor_reduce(dst=total, op=nl.add, data=result, axis=1)
        return stored(totals)

    return kernel


def _on_one_engine(alone: bool) -> Callable[..., Any]:
    """Eight tiles that are scaled and stored, by Vector alone or by Scalar as well."""

    def kernel(a: Any) -> Any:
        x, out = loaded(a), hbm((8, 128, 1024), BF16)
        for number in range(8):
            tile = sbuf((128, 1024), BF16)
            for _ in range(4):
                if alone or number not in (1, 4, 6):
                    nisa.tensor_scalar(dst=tile, data=x, op0=nl.multiply, operand0=float(number))
                else:
                    nisa.activation(dst=tile, op=nl.copy, data=x, scale=float(number))
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return kernel


def _passes(through: bool) -> Callable[..., Any]:
    """Scaled in one loop, exponentials in a second one, or both in the first."""

    def kernel(a: Any) -> Any:
        scratch, out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm), hbm(a.shape)
        for number in range(8):
            x = loaded(a[number])
            nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
            if through:
                nisa.dma_copy(dst=scratch[number], src=x)
            else:
                nisa.activation(dst=x, op=nl.exp, data=x)
                nisa.dma_copy(dst=out[number], src=x)
        for number in range(8 if through else 0):
            y = loaded(scratch[number])
            nisa.activation(dst=y, op=nl.exp, data=y)
            nisa.dma_copy(dst=out[number], src=y)
        return out

    return kernel


WIDE, ROW = (array(128, 1024),), (array(128, 512),)
CASES: dict[str, Case] = {
    "two-inputs": Case((_adds(sbuf), ROW), (_adds(psum), ROW), "trn1"),
    "float32-matmul": Case(
        (_products, (array(128, 512), array(128, 128))),
        (_products, (array(128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
    ),
    "far-strides": Case((_strided(32), (array(128, 16384),)), (_strided(1), (array(128, 16384),))),
    "few-partitions": Case((_rows(16), (array(16, 1024),)), (_rows(128), (array(128, 1024),))),
    "short-instructions": Case((_short, (array(128, 2048),)), (_long, (array(128, 2048),))),
    "slow-engine": Case(
        (_on(nisa.engine.gpsimd), (array(128, 512),)),
        (_on(nisa.engine.vector), (array(128, 512),)),
    ),
    "activation-tables": Case((_activations(False), (array(128, 512),)), (_activations(True), (array(128, 512),))),
    "tensor-clock": Case(
        (_pausing(True), (array(128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
        (_pausing(False), (array(128, 512, dtype=BF16), array(128, 128, dtype=BF16))),
    ),
    "shared-ports": Case((_one_bank(True), (array(128, 256),)), (_one_bank(False), (array(128, 256),))),
    "reused-buffers": Case((_buffers(1), (array(8, 128, 1024),)), (_buffers(8), (array(8, 128, 1024),))),
    "no-overlap": Case((_serial(1), (array(128, 4096),)), (_serial(16), (array(128, 4096),))),
    "loop-barriers": Case((_looped(True), (array(128, 512),)), (_looped(False), (array(128, 512),))),
    "small-descriptors": Case((_loads(True), (array(4, 128, 128),)), (_loads(False), (array(4, 128, 128),))),
    "transfer-starts": Case((_copies(64), (array(128, 4096),)), (_copies(4), (array(128, 4096),))),
    "repeated-results": Case((_scaled(True), (array(128, 1024),)), (_scaled(False), (array(128, 1024),))),
    "fusion": Case((_in_steps(False), WIDE), (_in_steps(True), WIDE)),
    "engine-balance": Case((_on_one_engine(True), WIDE), (_on_one_engine(False), WIDE)),
    "round-trips": Case((_passes(True), (array(8, 128, 1024),)), (_passes(False), (array(8, 128, 1024),))),
    "repeated-loads": Case(
        (_again(False), (array(128, 4096, dtype=BF16),)), (_again(True), (array(128, 4096, dtype=BF16),))
    ),
}
