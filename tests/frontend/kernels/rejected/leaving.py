"""Bodies that are left on the way."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl


def breaks(a: Any) -> Any:
    for _ in nl.dynamic_range(4):
        if a.shape[0] == 100:
            break  # error: loop.escape
    return a


def continues(a: Any) -> Any:
    register = nisa.register_alloc(0)
    while register:
        for _ in range(2):
            continue
        else:  # noqa: PLW0120
            continue  # error: loop.escape
    return a


def returns(a: Any) -> Any:
    for _ in nl.dynamic_range(0):
        try:
            for _ in range(3):
                break
        finally:
            return a  # error: loop.escape  # noqa: B012
    return a


def catches(a: Any) -> Any:
    try:
        for _ in nl.dynamic_range(4):  # error: loop.left
            raise KeyError("mine")
    except KeyError:
        return a


def catches_in_while(a: Any) -> Any:
    register = nisa.register_alloc(1)
    try:
        while register:  # error: loop.left
            raise KeyError("mine")
    except KeyError:
        return a


def unfinished_generator(a: Any) -> Any:
    def rows() -> Any:
        for i in nl.dynamic_range(4):  # error: loop.left  # noqa: UP028
            yield i

    for _ in rows():
        return a


KERNELS = [breaks, continues, returns, catches, catches_in_while, unfinished_generator]
