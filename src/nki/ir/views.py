"""The kinds of dynamic views by the names that IR uses for them, and the bounds of static ones."""

from __future__ import annotations

from typing import Any

from nki.core.source import Location
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View
from nki.ir.attributes import refused

DYNAMIC: dict[str, Any] = {
    "scalar_offset": ScalarOffset,
    "vector_offset": VectorOffset,
    "free_indirection": FreeIndirection,
}
DYNAMIC_NAMES: dict[type, str] = {kind: name for name, kind in DYNAMIC.items()}


def check_bounds(view: View, where: Location) -> None:
    """All elements of a static view lie in the buffer; those of a dynamic one are checked when it is used."""
    buffer, dtype, shape, strides, first, dynamic = view
    if dynamic is not None:
        return
    last = first
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return
        if stride > 0:
            last += (size - 1) * stride
        else:
            first += (size - 1) * stride
    elements = buffer.nbytes // dtype.itemsize
    if first < 0 or last >= elements:
        raise refused(
            "ir.view",
            f"a view of elements {first} to {last} of {buffer!r}",
            f"the buffer has elements 0 to {elements - 1}",
            where,
        )
