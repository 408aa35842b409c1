"""Rows that one scatter writes more than once: which of the writes stays is up to the hardware."""

from __future__ import annotations

import numpy as np

from nki.core.tensor import VectorOffset, View

RULE = "the rows of one scatter differ, because its writes have no order among each other"
FIX = "give each row an index of its own, add with nisa.dma_compute in steps, or send padding out of bounds with skip"
_MOST_NAMED = 3


def repeated_rows(view: View, starts: np.ndarray, values: np.ndarray) -> str:
    """What a message says of rows that are written with different values; empty if there are none.

    Many copies of one row that is the last of a longer tensor are where kernels put what nobody needs.

    Args:
        view: the destination, with a vector offset.
        starts: the first element of each row that is written.
        values: what is written, one item for each row.
    """
    order = np.sort(starts)
    twice = np.unique(order[1:][order[1:] == order[:-1]])
    if not twice.size:
        return ""
    assert isinstance(view.dynamic, VectorOffset), "only such views have rows"
    scale = view.dynamic.scale
    total = view.buffer.nbytes // view.dtype.itemsize
    if twice.size == 1 and twice[0] + scale >= total and total > scale * len(starts):
        return ""
    bits = np.ascontiguousarray(values).view(np.uint8).reshape(len(starts), -1)
    found = [start for start in twice.tolist() if np.ptp(bits[starts == start], axis=0).any()]
    if not found:
        return ""
    named = [
        f"row {(start - view.offset) // scale} by {', '.join(map(str, np.flatnonzero(starts == start)[:4]))}"
        for start in found[:_MOST_NAMED]
    ]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return (
        f"a scatter of {len(starts)} rows to {view.buffer.name or 'a tensor'} writes {len(found)} of them more than "
        f"once, with different values: {'; '.join(named)}{more}"
    )
