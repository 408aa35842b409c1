"""Allocations that do not fit, or that are not well formed."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.language as nl
from tests.rejected.support import Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused("tensor.partitions", X, at="nl.ndarray((256, 64), nl.float32)", cure=edit("(256, 64)", "(128, 64)"))
def too_many_partitions(a: Any) -> None:
    nl.ndarray((256, 64), nl.float32)


@refused(
    "tensor.partitions",
    X,
    at="nl.ndarray((64, 8), nl.float32, address=(96, 0))",
    cure=edit("address=(96, 0)", "address=(64, 0)"),
)
def address_beyond_the_last_partition(a: Any) -> None:
    nl.ndarray((64, 8), nl.float32, address=(96, 0))


@refused(
    "tensor.capacity",
    X,
    at="nl.ndarray((128, 65536), nl.float32)",
    cure=edit("65536", "16384"),
    only_calls=True,
)
def sbuf_row_too_long(a: Any) -> None:
    nl.ndarray((128, 65536), nl.float32)


@refused(
    "tensor.capacity",
    X,
    at="nl.ndarray((128, 8192), nl.float32, buffer=nl.psum)",
    cure=edit("8192", "4096"),
    only_calls=True,
)
def psum_row_too_long(a: Any) -> None:
    nl.ndarray((128, 8192), nl.float32, buffer=nl.psum)


@refused(
    "tensor.capacity",
    X,
    at="nl.ndarray((128, 512), nl.float32, buffer=nl.psum, address=(0, 15360))",
    cure=edit("15360", "14336"),
    only_calls=True,
)
def psum_address_near_the_end(a: Any) -> None:
    nl.ndarray((128, 512), nl.float32, buffer=nl.psum, address=(0, 15360))


@refused(
    "tensor.bank",
    X,
    at="nl.ndarray((128, 64), nl.float32, buffer=nl.psum, address=(0, 3000))",
    cure=edit("3000", "2048"),
)
def psum_address_inside_a_bank(a: Any) -> None:
    nl.ndarray((128, 64), nl.float32, buffer=nl.psum, address=(0, 3000))


@refused(
    "tensor.address",
    X,
    at="nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm, address=(0, 0))",
    cure=edit(", address=(0, 0)", ""),
)
def address_in_hbm(a: Any) -> None:
    nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm, address=(0, 0))


@refused("tensor.address", X, at="nl.ndarray((4, 4), nl.float32, address=4096)", cure=edit("=4096", "=(0, 4096)"))
def address_without_partition(a: Any) -> None:
    nl.ndarray((4, 4), nl.float32, address=4096)


@refused("tensor.address", X, at="nl.ndarray((4, 4), nl.float32, address=(0, -64))", cure=edit("-64", "64"))
def negative_address(a: Any) -> None:
    nl.ndarray((4, 4), nl.float32, address=(0, -64))


@refused("tensor.rank", X, at="nl.ndarray((128,), nl.float32)", cure=edit("(128,)", "(128, 1)"))
def vector_on_chip(a: Any) -> None:
    nl.ndarray((128,), nl.float32)


@refused("tensor.empty", X, at="nl.ndarray((4, a.shape[1] - 8), nl.float32)", cure=edit(" - 8", " - 7"))
def no_elements(a: Any) -> None:
    nl.ndarray((4, a.shape[1] - 8), nl.float32)


@refused("tensor.shape", X, at="nl.ndarray((4, a.shape[1] / 2), nl.float32)", cure=edit(" / ", " // "))
def divided_shape(a: Any) -> None:
    nl.ndarray((4, a.shape[1] / 2), nl.float32)


@refused("tensor.shape", X, at='nl.ndarray("128x512", nl.float32)', cure=edit('"128x512"', "(128, 512)"))
def shape_as_text(a: Any) -> None:
    nl.ndarray("128x512", nl.float32)


@refused("tensor.buffer", X, at='nl.ndarray((4, 8), nl.float32, buffer="psum")', cure=edit('"psum"', "nl.psum"))
def buffer_as_text(a: Any) -> None:
    nl.ndarray((4, 8), nl.float32, buffer="psum")


@refused("dtype.unknown", X, at='nl.ndarray((4, 8), "flaot32")', cure=edit('"flaot32"', '"float32"'))
def misspelt_dtype(a: Any) -> None:
    nl.ndarray((4, 8), "flaot32")


@refused("dtype.unsupported", X, at="nl.ndarray((4, 8), np.float64)", cure=edit("np.float64", "np.float32"))
def float64_tile(a: Any) -> None:
    nl.ndarray((4, 8), np.float64)


@refused("dtype.unsupported", X, at="nl.ndarray((4, 8), np.int64)", cure=edit("np.int64", "np.int32"))
def int64_tile(a: Any) -> None:
    nl.ndarray((4, 8), np.int64)
