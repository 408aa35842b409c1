"""Registers where Python needs a value, and loops that cannot be."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl


def branch(a: Any) -> Any:
    if nisa.register_alloc(1):  # error: register.python-value
        return a
    return a


def negation(a: Any) -> Any:
    while not nisa.register_alloc(1):  # error: register.python-value
        pass
    return a


def conjunction(a: Any) -> Any:
    register = nisa.register_alloc(1)
    while register and a is not None:  # error: register.python-value
        pass
    return a


def smaller(a: Any) -> Any:
    while min(nisa.scalar_load(a), 3):  # error: register.python-value
        pass
    return a


def chained(a: Any) -> Any:
    count = nisa.scalar_load(a)
    while 0 < count < 5:  # error: register.python-value
        pass
    return a


def asserted(a: Any) -> Any:
    assert nisa.scalar_load(a) > 0  # error: register.python-value
    return a


def in_range(a: Any) -> Any:
    for _ in range(nisa.register_alloc(3)):  # error: register.python-value
        pass
    return a


def in_static_range(a: Any) -> Any:
    for _ in nl.static_range(nisa.register_alloc(3)):  # error: register.python-value
        pass
    return a


def indexed(a: Any) -> Any:
    return [a][nisa.register_alloc(0)]  # error: register.python-value


def arithmetic(a: Any) -> Any:
    nisa.register_alloc(0) + 1  # error: register.python-value
    return a


def written_index(a: Any) -> Any:
    for i in nl.dynamic_range(4):
        nisa.register_move(i, 0)  # error: register_move.frozen
    return a


def no_step(a: Any) -> Any:
    for _ in nl.dynamic_range(0, 4, 0):  # error: loop.step
        pass
    return a


def register_step(a: Any) -> Any:
    nl.fori_loop(0, 4, lambda i: None, nisa.register_alloc(1))  # error: loop.step
    return a


def ordered(a: Any) -> Any:
    with nl.no_reorder():
        for _ in nl.dynamic_range(4):  # error: loop.no-reorder
            pass
    return a


def ordered_while(a: Any) -> Any:
    register = nisa.register_alloc(1)
    with nl.no_reorder():
        while register:  # error: loop.no-reorder
            pass
    return a


def enumerated(a: Any) -> Any:
    for _, _ in enumerate(nl.dynamic_range(4)):  # error: loop.dynamic-range
        pass
    return a


def comprehension(a: Any) -> Any:
    [nl.load(a) for _ in nl.dynamic_range(4)]  # error: loop.dynamic-range
    return a


def tensor_of_the_body(a: Any) -> Any:
    for _ in nl.dynamic_range(4):
        tile = nl.load(a)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)  # error: tensor.scope
    return out


def index_of_the_body(a: Any) -> Any:
    out = nl.ndarray((1,), a.dtype, buffer=nl.shared_hbm)
    for _ in nl.dynamic_range(4):
        view = a.select(0, nl.zeros((1, 1), nl.int32))
    nisa.dma_copy(dst=out, src=view)  # error: tensor.scope
    return out


def division(a: Any) -> Any:
    zero = nisa.register_alloc(0)
    1 // nisa.NkiScalar(zero)  # error: register.arithmetic
    return a


def scalar_of_a_float(a: Any) -> Any:
    tile = nl.zeros((1, 1), nl.float32)
    nisa.scalar_load(tile)  # error: scalar.dtype
    return a


def scalar_and_float(a: Any) -> Any:
    nisa.scalar_load(a) * 0.5  # error: scalar.operand
    return a


KERNELS = [
    branch,
    negation,
    conjunction,
    smaller,
    chained,
    asserted,
    in_range,
    in_static_range,
    indexed,
    arithmetic,
    written_index,
    no_step,
    register_step,
    ordered,
    ordered_while,
    enumerated,
    comprehension,
    tensor_of_the_body,
    index_of_the_body,
    division,
    scalar_of_a_float,
    scalar_and_float,
]
