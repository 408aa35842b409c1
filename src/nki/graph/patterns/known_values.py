"""Values of a model that no argument decides, computed when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from nki.graph.ir import Value
from nki.graph.passes.numpy_ops import compute
from nki.graph.passes.rewriter import Rewriter

_MOST = 1 << 24
"""Elements: of the mask of 4096 queries and keys."""

_DEEPEST = 48
_NOTHING: Mapping[Value, np.ndarray[Any, Any]] = MappingProxyType({})


def known(
    r: Rewriter, value: Value, *, given: Mapping[Value, np.ndarray[Any, Any]] = _NOTHING
) -> np.ndarray[Any, Any] | None:
    """The elements of a value that is made of constants and of positions; None if it is not, or is too large.

    Args:
        given: elements of other values, as if they were these.
    """
    return _known(r, value, 0, dict(given))


def _known(
    r: Rewriter, value: Value, depth: int, made: dict[Value, np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any] | None:
    if value in made:
        return made[value]
    found = r.constant_of(value)
    op = r.maker(value)
    if found is not None or op is None or op.regions or len(op.results) != 1:
        return found
    if value.type.size > _MOST or depth == _DEEPEST:
        return None
    arrays = []
    for operand in op.operands:
        array = _known(r, operand, depth + 1, made)
        if array is None:
            return None
        arrays.append(array)
    found = compute(op, arrays)
    if found is not None:
        made[value] = found
    return found
