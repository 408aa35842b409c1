"""Add two matrices: the smallest complete kernel, in the order load, compute, store.

nki run examples/tensor_add.py --arg a=256x1024:float32 --arg b=256x1024:float32
"""

import nki
import nki.isa as nisa
import nki.language as nl

# SBUF has 128 partitions: a taller matrix is handled in pieces of 128 rows.
ROWS = 128


@nki.jit
def tensor_add(a, b):
    """Return ``a + b`` for two matrices of the same shape and dtype; the last piece may have fewer rows."""
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = a.shape
    for start in range(0, rows, ROWS):
        piece = nl.ds(start, min(ROWS, rows - start))
        add_rows(total[piece, 0:columns], a[piece, 0:columns], b[piece, 0:columns])
    return total


def add_rows(total, a, b):
    """``total = a + b`` in HBM, for at most 128 rows."""
    # Engines reach only on-chip memory, so both inputs come into SBUF first.
    a_tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    b_tile = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a)
    nisa.dma_copy(dst=b_tile, src=b)

    total_tile = nl.ndarray(total.shape, dtype=total.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total_tile, data1=a_tile, data2=b_tile, op=nl.add)
    nisa.dma_copy(dst=total, src=total_tile)
