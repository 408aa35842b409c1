"""The Tensor engine and PSUM: operands that do not meet, tiles that are too large, results in the wrong place."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import WIDE, Topic, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused
LONG = np.ones((128, 640), np.float32)
SQUARE = np.ones((128, 128), np.float32)


@refused("nc_matmul.contraction", LONG, at="nisa.nc_matmul(p, s[0:64], m)", cure=edit("0:64], m)", "0:64], m[0:64])"))
def contraction_of_two_sizes(a: Any) -> None:
    s, m = nl.load(a[:, 0:128]), nl.load(a[:, 0:512])
    p = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s[0:64], m)


@refused("nc_matmul.stationary-size", LONG, at="nisa.nc_matmul(p, s, m)", cure=edit("0:256", "0:128"))
def stationary_too_wide(a: Any) -> None:
    s, m = nl.load(a[:, 0:256]), nl.load(a[:, 0:512])
    p = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, m)


@refused(
    "nc_matmul.moving-size", LONG, at="nisa.nc_matmul(p, s, m)", cure=edit("0:640", "0:512", "(128, 640)", "(128, 512)")
)
def moving_too_wide(a: Any) -> None:
    s, m = nl.load(a[:, 0:128]), nl.load(a[:, 0:640])
    p = nl.ndarray((128, 640), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, m)


@refused("nc_matmul.dst-shape", LONG, at="nisa.nc_matmul(p, s, m)", cure=edit("(128, 64)", "(64, 128)"))
def result_the_wrong_way_round(a: Any) -> None:
    s, m = nl.load(a[:, 0:64]), nl.load(a[:, 0:128])
    p = nl.ndarray((128, 64), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, m)


@refused(
    "operand.region", SQUARE, at="nisa.nc_matmul(p, s, s)", cure=edit("nl.float32)", "nl.float32, buffer=nl.psum)")
)
def product_into_sbuf(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32)
    nisa.nc_matmul(p, s, s)


@refused("operand.region", SQUARE, at="nisa.nc_matmul(p, a, s)", cure=edit("(p, a, s)", "(p, nl.load(a), s)"))
def stationary_from_hbm(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, a, s)


@refused("operand.region", SQUARE, at="nisa.nc_matmul(q, p, s)", cure=edit("(q, p, s)", "(q, nl.copy(p), s)"))
def product_of_a_product(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    q = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, s)
    nisa.nc_matmul(q, p, s)


@refused(
    "nc_matmul.input-dtype",
    np.ones((128, 128), np.int32),
    at="nisa.nc_matmul(p, s, s)",
    cure=edit("nl.load(a)", "nl.load(a, dtype=nl.bfloat16)"),
)
def product_of_integers(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, s)


@refused(
    "nc_matmul.mixed-float32",
    SQUARE,
    at="nisa.nc_matmul(p, s, m)",
    cure=edit("dtype=nl.bfloat16", "dtype=nl.float32"),
)
def float32_times_bfloat16(a: Any) -> None:
    s, m = nl.load(a), nl.load(a, dtype=nl.bfloat16)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, m)


@refused("nc_matmul.dst-dtype", SQUARE, at="nisa.nc_matmul(p, s, s)", cure=edit("nl.bfloat16,", "nl.float32,"))
def product_in_bfloat16(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.psum)
    nisa.nc_matmul(p, s, s)


@refused("nc_matmul.dst-bank", LONG, at="nisa.nc_matmul(p[:, 256:768], s, m)", cure=edit("256:768", "512:1024"))
def product_over_two_banks(a: Any) -> None:
    s, m = nl.load(a[:, 0:128]), nl.load(a[:, 0:512])
    p = nl.ndarray((128, 1024), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p[:, 256:768], s, m)


@refused(
    "nc_matmul.tile-size",
    SQUARE,
    at="nisa.nc_matmul(p[0:48], s[0:48, 0:48], s[0:48], tile_position=(0, 0), tile_size=(48, 48))",
    cure=edit("tile_size=(48, 48)", "tile_size=(64, 64)"),
)
def tile_of_forty_eight(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p[0:48], s[0:48, 0:48], s[0:48], tile_position=(0, 0), tile_size=(48, 48))


@refused(
    "nc_matmul.tile-position",
    SQUARE,
    at="nisa.nc_matmul(p[0:64], s[0:64, 0:64], s[0:64], tile_position=(32, 0), tile_size=(64, 64))",
    cure=edit("(32, 0)", "(64, 0)"),
)
def tile_between_two_places(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p[0:64], s[0:64, 0:64], s[0:64], tile_position=(32, 0), tile_size=(64, 64))


@refused(
    "nc_matmul.tile-both",
    SQUARE,
    at="nisa.nc_matmul(p[0:64], s[0:64, 0:64], s[0:64], tile_size=(64, 64))",
    cure=edit("tile_size=", "tile_position=(0, 0), tile_size="),
)
def tile_without_a_position(a: Any) -> None:
    s = nl.load(a)
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p[0:64], s[0:64, 0:64], s[0:64], tile_size=(64, 64))


@refused(
    "nc_transpose.size", WIDE, at="nisa.nc_transpose(t, s)", cure=edit("nl.float32)", "nl.float32, buffer=nl.psum)")
)
def large_transpose_into_sbuf(a: Any) -> None:
    s = nl.load(a)
    t = nl.ndarray((16, 128), nl.float32)
    nisa.nc_transpose(t, s)


@refused("nc_transpose.shape", WIDE, at="nisa.nc_transpose(t, s)", cure=edit("(128, 16)", "(16, 128)"))
def transpose_into_the_same_shape(a: Any) -> None:
    s = nl.load(a)
    t = nl.ndarray((128, 16), nl.float32, buffer=nl.psum)
    nisa.nc_transpose(t, s)


@refused("nc_transpose.dtype", WIDE, at="nisa.nc_transpose(t, s)", cure=edit("nl.bfloat16", "nl.float32"))
def transpose_with_a_cast(a: Any) -> None:
    s = nl.load(a)
    t = nl.ndarray((16, 128), nl.bfloat16, buffer=nl.psum)
    nisa.nc_transpose(t, s)


@refused(
    "nc_transpose.engine-memory",
    WIDE,
    at="nisa.nc_transpose(t, s, engine=nisa.engine.tensor)",
    cure=edit("nl.float32)", "nl.float32, buffer=nl.psum)"),
)
def tensor_engine_into_sbuf(a: Any) -> None:
    s = nl.load(a)
    t = nl.ndarray((16, 128), nl.float32)
    nisa.nc_transpose(t, s, engine=nisa.engine.tensor)


@refused(
    "nc_matmul.contraction",
    LONG,
    at="nisa.nc_matmul(p, x, y)",
    cure=edit(
        "    nisa.nc_matmul(p, x, y)",
        "    t = nl.ndarray((128, 64), x.dtype, buffer=nl.psum)\n"
        "    nisa.nc_transpose(t, x)\n"
        "    nisa.nc_matmul(p, nl.copy(t), y)",
    ),
)
def stationary_of_rows(a: Any) -> None:
    x, y = nl.load(a[0:64, 0:128]), nl.load(a[:, 0:512])
    p = nl.ndarray((64, 512), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, x, y)
