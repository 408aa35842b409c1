"""``kernels.vision``: the gradient of a pooling, and a resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.streaming import filled, load, result, sbuf, size, spans, store

__all__ = ["resize_nearest_fixed_dma_kernel", "select_and_scatter_kernel"]

_WINDOW = 3
_STRIDE = 2
_ROW_BYTES = 160 * 1024
"""What tiles of one image may take of a partition."""


def select_and_scatter_kernel(operand_tensor: Any, source_tensor: Any) -> Any:
    """Add each element of `source_tensor` to where its window of `operand_tensor` has its largest element.

    Windows are 3 by 3, two apart, with a border of one around the image; of equal elements the first one counts, row by
    row. Sums have the dtype of the tensors.

    Args:
        operand_tensor: (n, c, h, w), float32, bfloat16 or float16.
        source_tensor: (n, c, (h + 1) // 2, (w + 1) // 2), of the same dtype.

    Returns:
        (n, c, h, w).

    Raises:
        KernelLimit: other shapes or dtypes, and images that do not fit into SBUF.
    """
    n, c, h, w = operand_tensor.shape
    rows, columns = (h - 1) // _STRIDE + 1, (w - 1) // _STRIDE + 1
    limits.shape("source_tensor", source_tensor, (n, c, rows, columns))
    limits.same_dtype(operand_tensor=operand_tensor, source_tensor=source_tensor)
    limits.dtype("operand_tensor", operand_tensor, (nl.float32, nl.bfloat16, nl.float16))
    limits.between("h * w", h * w, 1, _ROW_BYTES // 8 // operand_tensor.dtype.itemsize, "SBUF holds the tiles")
    out = result((n, c, h, w), operand_tensor.dtype)
    operand, source, target = (each.reshape((n * c, *each.shape[2:])) for each in (operand_tensor, source_tensor, out))
    for part in spans(n * c, 128, shared=True):
        store(target[part], _scattered(operand[part], source[part]))
    return out


def _scattered(operand: Any, source: Any) -> Any:
    """The result of images that lie on partitions: (images, h, w) in SBUF."""
    images, h, w = operand.shape
    dtype = operand.dtype
    padded = filled((images, h + 2, w + 2), dtype, float(dtype.min))
    nisa.dma_copy(dst=padded[:, 1 : h + 1, 1 : w + 1], src=operand)
    windows = [(y, x) for y in range(_WINDOW) for x in range(_WINDOW)]
    largest = sbuf(source.shape, dtype)
    nisa.tensor_copy(dst=largest, src=_shifted(padded, 0, 0, source.shape))
    for y, x in windows[1:]:
        nisa.tensor_tensor(dst=largest, data1=largest, data2=_shifted(padded, y, x, source.shape), op=nl.maximum)
    left = load(source)  # what has found no place yet
    total = filled((images, h + 2, w + 2), dtype, 0.0)
    for y, x in windows:
        found, given = sbuf(source.shape, nl.uint8), filled(source.shape, dtype, 0.0)
        nisa.tensor_tensor(dst=found, data1=_shifted(padded, y, x, source.shape), data2=largest, op=nl.equal)
        nisa.tensor_copy_predicated(dst=given, src=left, predicate=found)
        nisa.tensor_copy_predicated(dst=left, src=0.0, predicate=found)
        place = _shifted(total, y, x, source.shape)
        nisa.tensor_tensor(dst=place, data1=place, data2=given, op=nl.add)
    return total[:, 1 : h + 1, 1 : w + 1]


def _shifted(tile: Any, y: int, x: int, shape: Sequence[int]) -> Any:
    """The element (y, x) of every window."""
    rows, columns = _STRIDE * (shape[1] - 1) + 1, _STRIDE * (shape[2] - 1) + 1
    return tile[:, y : y + rows : _STRIDE, x : x + columns : _STRIDE]


def resize_nearest_fixed_dma_kernel(data_tensor: Any, out_shape: Sequence[int]) -> Any:
    """The nearest pixel for each of an image of another size: row ``floor(y * (h / out_h))`` for row y.

    Args:
        data_tensor: (b, h, w, c).
        out_shape: (b, out_h, out_w, c).

    Returns:
        A tensor of that shape.

    Raises:
        KernelLimit: another batch or number of channels, and rows that do not fit into SBUF.
    """
    b, h, w, c = data_tensor.shape
    limits.need(
        len(out_shape) == 4 and (out_shape[0], out_shape[3]) == (b, c),
        "out_shape",
        list(out_shape),
        f"out_shape is ({b}, out_h, out_w, {c})",
        "keep the batch and the channels",
    )
    _, out_h, out_w, _ = out_shape
    row = (w + out_w) * c * data_tensor.dtype.itemsize
    limits.between("bytes of a row in both images", row, 1, _ROW_BYTES, "SBUF holds it")
    from_row, from_column = _nearest(h, out_h), _nearest(w, out_w)
    out = result((b, out_h, out_w, c), data_tensor.dtype)
    for image in range(b):
        for part in spans(h, 128, shared=True):
            narrow, wide = load(data_tensor[image, part]), sbuf((size(part), out_w, c), data_tensor.dtype)
            for column, source in enumerate(from_column):
                nisa.tensor_copy(dst=wide[:, column], src=narrow[:, source])
            for y, source in enumerate(from_row):
                if part.start <= source < part.stop:
                    at = source - part.start
                    nisa.dma_copy(dst=out[image, y : y + 1], src=wide[at : at + 1])
    return out


def _nearest(count: int, wanted: int) -> list[int]:
    """The index of the source for each index, with products of float32 as the published kernel makes them."""
    scale = np.float32(count / wanted)
    return [min(int(np.float32(index) * scale), count - 1) for index in range(wanted)]
