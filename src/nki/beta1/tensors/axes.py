"""Axes of tensors, as functions get them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from nki.beta1.errors import Beta1TypeError, Beta1ValueError, refused


def axes_of(axis: Any, rank: int, function: str) -> list[int]:
    """Axes of a tensor in their order, of an int or several; negative ones count from the end. Raises Beta1Error."""
    given = axis if isinstance(axis, Sequence) else (axis,)
    try:
        found = [operator.index(each) for each in given]
    except TypeError:
        raise _refused(axis, rank, function, Beta1TypeError) from None
    axes = sorted({each % rank for each in found if -rank <= each < rank})
    if len(axes) < len(found):
        raise _refused(axis, rank, function, Beta1ValueError)
    return axes


def _refused(axis: Any, rank: int, function: str, kind: Any) -> Exception:
    return refused(
        "argument",
        f"axis={axis!r} of {function}, where there are {rank} dimensions",
        f"write an int from 0 to {rank - 1}, or several that differ",
        kind=kind,
    )
