"""Examples of register_alu, which the arithmetic of `NkiScalar` issues."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.language as nl
from nki.core.dtypes import int32
from nki.isa.register import register_alloc, register_alu, register_op
from nki.isa.scalar import scalar_load, scalar_store
from nki.spec.sink import current_sink
from tests.isa.registry import Breaks, Legal


def numbers() -> tuple[Any, ...]:
    return (np.array([[7, -3]], np.int32),)


def combined(a: Any) -> Any:
    out = nl.ndarray((1, 3), int32, buffer=nl.shared_hbm)
    x, y = scalar_load(a[0:1, 0:1]), scalar_load(a[0:1, 1:2])
    for k, value in enumerate((x * y, 2 - x, (x // y) & 0xFF)):
        scalar_store(out[0:1, k : k + 1], value)
    return out


def wide(a: Any) -> Any:
    register_alu(register_alloc(), 2**32, 1, register_op.add)
    return a


def into_the_index(a: Any) -> Any:
    current_sink("example").for_loop(0, 2, 1, lambda index: register_alu(index, 1, 1, register_op.add))
    return a


EXAMPLES = [
    Legal("register_alu", combined, numbers, lambda a: np.array([[-21, -5, 253]])),
    Breaks("register_alu.range", wide, numbers),
    Breaks("register_alu.frozen", into_the_index, numbers),
]
