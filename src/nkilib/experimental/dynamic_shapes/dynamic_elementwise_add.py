"""The sum of two matrices, of as many rows as are asked for when it runs::

    out[: 128 * n] = input_a[: 128 * n] + input_b[: 128 * n]

Layouts: input_a, input_b (M, H) and n (1, 1) int32 in HBM. Dtypes: bfloat16, float16 or float32; sums are float32 and
round once. Limits: M is a multiple of 128, 0 <= n <= M / 128. The other rows of the result hold nothing that counts.

Plan: a loop on the device takes 128 rows a trip; DMA loads pieces of their columns, Vector adds, DMA stores, which
bounds it. The cores of the launch share the columns, and so each makes all trips.

Source: nki/library/api/dynamic-elementwise-add.rst.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.streaming import load, result, sbuf, spans, store

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)

_PIECE_BYTES = 4096
"""Of a partition, that one transfer loads."""


@nki.jit
def dynamic_elementwise_add(input_a: nl.NkiTensor, input_b: nl.NkiTensor, num_m_tiles: nl.NkiTensor) -> nl.NkiTensor:
    """Add the first tiles of 128 rows; the cores of the launch share the columns.

    Args:
        input_a, input_b: (M, H) in HBM, of one dtype.
        num_m_tiles: (1, 1) int32 in HBM, how many tiles; more than there are is an error while the kernel runs.

    Returns:
        (M, H), of which the rows of these tiles are written.

    Raises:
        KernelLimit: shapes, dtypes, M that is no multiple of 128.
    """
    sizes = limits.shape("input_a", input_a, ("M", "H"))
    limits.shape("input_b", input_b, ("M", "H"), sizes)
    limits.shape("num_m_tiles", num_m_tiles, (1, 1))
    limits.dtype("input_a", input_a, _FLOATS)
    limits.same_dtype(input_a=input_a, input_b=input_b)
    limits.dtype("num_m_tiles", num_m_tiles, (nl.int32,))
    rows = int(nl.tile_size.pmax)
    limits.multiple("M", sizes["M"], rows, "a trip of the loop takes as many rows")
    out = result((sizes["M"], sizes["H"]), input_a.dtype)
    first, second, target = (each.reshape((sizes["M"] // rows, rows, sizes["H"])) for each in (input_a, input_b, out))
    pieces = spans(sizes["H"], _PIECE_BYTES // input_a.dtype.itemsize, shared=True)

    def trip(number: Any) -> None:
        for part in pieces:
            one, other = (load(each.select(0, number)[:, part]) for each in (first, second))
            total = sbuf(one.shape, out.dtype)
            nisa.tensor_tensor(dst=total, data1=one, data2=other, op=nl.add)
            store(target.select(0, number)[:, part], total)

    count = nisa.register_alloc()
    nisa.register_load(count, load(num_m_tiles))
    nl.fori_loop(0, count, trip)
    return out
