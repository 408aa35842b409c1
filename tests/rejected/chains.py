"""Errors below the kernel's own body: helpers, other files, methods, lambdas, and what the excerpt shows of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import nki.isa as nisa
import nki.language as nl
from tests.rejected.helper import add_into
from tests.rejected.support import Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


def widen(tile: Any) -> Any:
    return normalize(tile[:, 0:4], tile)


def normalize(part: Any, whole: Any) -> Any:
    nisa.tensor_copy(dst=whole, src=part)
    return whole


@refused("tensor_copy.shapes", X, at="nisa.tensor_copy(dst=whole, src=part)", cure=edit("widen(t)", "normalize(t, t)"))
def three_levels(a: Any) -> None:
    t = nl.load(a)
    widen(t)


@refused(
    "tensor_tensor.shapes",
    X,
    at="nisa.tensor_tensor(dst=dst, data1=dst, data2=other, op=nl.add)",
    cure=edit("t[:, 0:4])", "t)"),
)
def helper_of_another_file(a: Any) -> None:
    t = nl.load(a)
    add_into(t, t[:, 0:4])


def descend(tile: Any, levels: int) -> None:
    if levels:
        descend(tile, levels - 1)
    else:
        nisa.memset(tile[0:9], 0)


@refused("access.out-of-bounds", X, at="tile[0:9]", cure=edit("descend(nl.load(a), 14)", "nl.load(a)"))
def fifteen_levels(a: Any) -> None:
    descend(nl.load(a), 14)


class Layer:
    """A layer with a method, as models have them."""

    def __init__(self, width: int) -> None:
        self.width = width

    def apply(self, tile: Any) -> Any:
        return tile[:, 0 : self.width]


@refused("access.out-of-bounds", X, at="tile[:, 0 : self.width]", cure=edit("Layer(16)", "Layer(8)"))
def method_of_an_object(a: Any) -> None:
    Layer(16).apply(nl.load(a))


@refused("access.out-of-bounds", X, at="tile[0:n]", cure=edit("(4, 6)", "(4, 2)"))
def lambda_in_a_loop(a: Any) -> None:
    tile = nl.load(a)
    take = lambda n: tile[0:n]  # noqa: E731
    for n in (4, 6):
        take(n)


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> None:
        function(*args)
        function(*args)

    return call


@twice
def clear(tile: Any) -> None:
    nisa.memset(tile, "0")


@refused("operand.kind", X, at='nisa.memset(tile, "0")', cure=edit("clear(nl.load(a))", "nisa.memset(nl.load(a), 0)"))
def decorated_helper(a: Any) -> None:
    clear(nl.load(a))


@refused("language.region", X, at="nl.exp(a)", cure=edit("nl.exp(a)", "nl.exp(nl.load(a))"))
def function_of_the_language(a: Any) -> None:
    nl.exp(a)


@refused(
    "language.broadcast",
    X,
    at="nl.add(t, t[:, 0:3])",
    cure=edit("0:3", "0:1"),
)
def inner_call_of_an_expression(a: Any) -> None:
    t = nl.load(a)
    nl.store(a, nl.exp(nl.add(t, t[:, 0:3])))


@refused(
    "tensor_tensor.shapes",
    X,
    at="nisa.tensor_tensor(",
    cure=edit("data2=t[:, 0:4],", "data2=t,"),
)
def call_over_several_lines(a: Any) -> None:
    t = nl.load(a)
    nisa.tensor_tensor(
        dst=t,
        data1=t,
        data2=t[:, 0:4],
        op=nl.add,
    )


@refused("access.out-of-bounds", X, at="größe[0:5]", cure=edit("[0:5]", "[0:4]"))
def letters_of_two_bytes(a: Any) -> None:
    größe = nl.load(a)
    nisa.memset(value=0, name="Übermaß", dst=größe[0:5])


@refused("access.out-of-bounds", X, at="t[0:5]", cure=edit("t[0:5]", "t[0:4]"))
def second_call_of_a_line(a: Any) -> None:
    t = nl.load(a)
    _ = nisa.memset(t[0:4], 0), nisa.memset(t[0:5], 0)
