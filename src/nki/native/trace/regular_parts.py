"""Regular parts of the rows of a view, as views of their own."""

from __future__ import annotations

from nki.core.tensor import View


def piece(view: View, start: int, step: int, count: int) -> View | None:
    """Elements ``start + i * step`` of each row, counted in row-major order; None if no stride leads through them."""
    dims = [(n, s) for n, s in zip(view.shape[1:], view.strides[1:], strict=True) if n > 1]
    merged: list[tuple[int, int]] = []
    for size, stride in dims:
        if merged and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    if len(merged) > 1:
        return None
    stride = merged[0][1] if merged else 1
    return view._replace(
        shape=(view.shape[0], count), strides=(view.strides[0], step * stride), offset=view.offset + start * stride
    )
