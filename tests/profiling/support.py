"""Profiles of small kernels, compiled as a call compiles them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.profiling.record import Profile
from nki.profiling.table import Table


def sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def hbm(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def loaded(source: Any, dtype: Any = None) -> Any:
    tile = sbuf(source.shape, dtype or source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def stored(tile: Any) -> Any:
    out = hbm(tile.shape, tile.dtype)
    nisa.dma_copy(dst=out, src=tile)
    return out


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def loaded_part(a: Any) -> Any:
    """A load into a part of a larger tile, which the compiler does however often it is repeated."""
    tile = sbuf((a.shape[0], 2, a.shape[1]))
    nisa.dma_copy(dst=tile[:, 0], src=a)
    return tile[:, 0]


def profiled(kernel: Callable[..., Any], *arguments: Any, lnc: int | None = None) -> Profile:
    """For Trainium2, whatever the environment says: `fixed_target` in conftest.py sets it."""
    profiler = nki.profile(kernel)
    return profiler[lnc](*arguments) if lnc else profiler(*arguments)


def rules(profile: Profile) -> set[str]:
    return {advice["rule"] for advice in profile.advice}


def advice(profile: Profile, rule: str) -> dict[str, Any]:
    return next(each for each in profile.advice if each["rule"] == rule)


def by(table: Table, *columns: str) -> dict[Any, list[dict[str, Any]]]:
    """Rows by the values of some columns."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in table.rows():
        key = tuple(row[column] for column in columns)
        found[key if len(columns) > 1 else key[0]].append(row)
    return found


# --- kernels that several tests profile


def pipeline(a: Any, weights: Any) -> Any:
    """Load, multiply, activate with two functions, combine, store: five tiles, all engines but GpSimd."""
    out = hbm((128, a.shape[1]), nl.bfloat16)
    w = loaded(weights)
    for start in range(0, a.shape[1], 512):
        x = loaded(a[:, start : start + 512])
        product, y, z = psum((128, 512)), sbuf((128, 512), nl.bfloat16), sbuf((128, 512), nl.bfloat16)
        nisa.nc_matmul(dst=product, stationary=w, moving=x)
        nisa.activation(dst=y, op=nl.exp if start % 1024 else nl.tanh, data=product)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.add)
        nisa.tensor_scalar(dst=z, data=z, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=out[:, start : start + 512], src=z)
    return out


PIPELINE = (array(128, 2560, dtype=nl.bfloat16), array(128, 128, dtype=nl.bfloat16))


def looping(a: Any) -> Any:
    """A device loop in a device loop, with work before and after it."""
    out = hbm(a.shape, a.dtype)
    total = sbuf((128, 512))
    nisa.memset(dst=total, value=0.0)

    def outer(row: Any) -> None:
        def inner(column: Any) -> None:
            tile = sbuf((128, 512))
            nisa.dma_copy(dst=tile, src=a.select(0, row))
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)

        nl.fori_loop(0, 3, inner)
        nisa.dma_copy(dst=out.select(0, row), src=total)

    nl.fori_loop(0, 4, outer)
    last = sbuf((128, 512))
    nisa.activation(dst=last, op=nl.exp, data=total)
    nisa.dma_copy(dst=out[0], src=last)
    return out


LOOPING = (array(4, 128, 512),)
