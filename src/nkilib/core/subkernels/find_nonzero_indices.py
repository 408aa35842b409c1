"""Where the elements of each column are that are not zero, as routers ask for the tokens of each expert.

    indices[c] = the t with input[t, c] != 0, in ascending order, then -1
    counts[c]  = how many there are

Layouts: input (T, C) in HBM; indices (C, T), counts (C,) int32. Dtypes: bfloat16, float16, float32 or int32; indices
int32 or int16. NaN is not zero, -0 is. Limits: none but those of the index dtype.

Plan: GpSimd searches eight columns at a time, of which each processor has one on its first partition, and bounds the
kernel. Vector makes ones of what is not zero, the Tensor engine transposes them, and sends each column to its
processor. A long column is searched in chunks; each is stored where the one before ended, over its padding.

Source: the instruction nonzero_with_count.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.streaming import ceil_div, filled, load, psum, result, sbuf, size, spans, store, transpose

_PROCESSORS = 8
_APART = 16
"""Partitions of a processor, which searches the first of them."""
_CHUNK = 4096
"""Elements of a column at once: three tiles of them and one that is filled have room."""


@nki.jit
def find_nonzero_indices(
    input_tensor: nl.NkiTensor,
    col_start_id: nl.NkiTensor | None = None,
    n_cols: int | None = None,
    chunk_size: int | None = None,
    index_dtype: Any = nl.int32,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """Find them; the cores of the launch divide the columns.

    Args:
        input_tensor: (T, C) in HBM.
        col_start_id: (1,) int32 in HBM, the first column, where not all are searched. It is known when the model runs.
        n_cols: how many columns are searched from there on; with `col_start_id` only.
        chunk_size: elements of a column that are searched at once; by default at most 4,096.
        index_dtype: of the indices.

    Returns:
        Indices (C or n_cols, T), padded with -1, and counts (C or n_cols,) int32.

    Raises:
        KernelLimit: shapes, dtypes, one of `col_start_id` and `n_cols` alone, more columns than there are, T beyond the
            index dtype.
    """
    length, columns = _check(input_tensor, col_start_id, n_cols, chunk_size, index_dtype)
    indices, counts = result((columns, length), index_dtype), result((columns,), nl.int32)
    start = None if col_start_id is None else load(col_start_id)
    chunks = spans(length, min(length, chunk_size or _CHUNK))
    eye = nl.shared_identity_matrix(nl.tile_size.pmax, nl.bfloat16)
    for mine in spans(columns, ceil_div(columns, nl.num_programs(0)), shared=True):
        for group in spans(size(mine), nl.tile_size.pmax):
            some = slice(mine.start + group.start, mine.start + group.stop)
            eights = spans(size(some), _PROCESSORS)
            ends = [filled((nl.tile_size.pmax, 1), nl.int32, 0) for _ in eights]
            if len(chunks) > 1:
                _pad(indices[some])
            for chunk in chunks:
                ones = _transposed_ones(input_tensor, chunk, some, start)
                for eight, end in zip(eights, ends, strict=True):
                    found = _search(ones, eye, eight, chunk.start, index_dtype != nl.int32)
                    _store(found, indices[some][eight], end if len(chunks) > 1 else None)
                    nisa.tensor_tensor(dst=end, data1=end, data2=found[:, size(chunk) :], op=nl.add)
            for eight, end in zip(eights, ends, strict=True):
                for each in range(size(eight)):
                    store(counts[some][eight][each : each + 1], end[each * _APART : each * _APART + 1])
    return indices, counts


def _check(source: Any, start: Any, count: int | None, chunk: int | None, dtype: Any) -> tuple[int, int]:
    """Length and number of the columns that are searched."""
    limits.generation("find_nonzero_indices", 3, "GpSimd searches there")
    sizes = limits.shape("input_tensor", source, ("T", "C"))
    limits.dtype("input_tensor", source, (nl.bfloat16, nl.float16, nl.float32, nl.int32))
    limits.one_of("index_dtype", dtype, (nl.int32, nl.int16))
    limits.between("T", sizes["T"], 1, 2**15 if dtype == nl.int16 else 2**31 - 1, f"indices are {dtype}")
    limits.between("chunk_size", 1 if chunk is None else chunk, 1, sizes["T"])
    limits.need(
        (start is None) == (count is None),
        "n_cols",
        count,
        rule="col_start_id and n_cols come together",
        fix="pass both, or none of them",
    )
    if start is None or count is None:
        return sizes["T"], sizes["C"]
    limits.shape("col_start_id", start, (1,))
    limits.dtype("col_start_id", start, (nl.int32,))
    limits.between("n_cols", count, 1, sizes["C"])
    return sizes["T"], count


def _pad(target: Any) -> None:
    """-1 for every index of some columns; transfers are followed by those of the chunks."""
    for part in spans(target.shape[1], _CHUNK):
        store(target[:, part], filled((target.shape[0], size(part)), target.dtype, -1))


def _transposed_ones(source: Any, chunk: slice, columns: slice, start: Any) -> Any:
    """A chunk of at most 128 columns with a column on each partition: 1 where an element is not zero, else 0."""
    ones = sbuf((size(columns), size(chunk)), nl.bfloat16)
    for rows in spans(size(chunk), nl.tile_size.pmax):
        tile, flags = (sbuf((size(rows), size(columns)), dtype) for dtype in (source.dtype, nl.bfloat16))
        nisa.dma_copy(dst=tile, src=_part(source, chunk.start + rows.start, size(rows), columns, start))
        nisa.tensor_scalar(dst=flags, data=tile, op0=nl.not_equal, operand0=0.0)
        transpose(flags, into=ones[:, rows])
    return ones


def _part(source: Any, row: int, rows: int, columns: slice, start: Any) -> Any:
    """Rows and columns of the input, of which the first may be known only when the model runs."""
    if start is None:
        return source[row : row + rows, columns]
    wide = source.shape[1]
    pattern = [[wide, rows], [1, size(columns)]]
    return source.ap(pattern=pattern, offset=row * wide + columns.start, scalar_offset=start, indirect_dim=1)


def _search(ones: Any, eye: Any, eight: slice, first: int, whole: bool) -> Any:
    """What the processors find in eight columns: indices, padding and their number, on every 16th partition."""
    columns, length = ones.shape
    choice = filled((columns, nl.tile_size.pmax), nl.bfloat16, 0.0)
    chosen = choice.reshape((columns, _PROCESSORS, _APART))[:, : size(eight), 0]
    nisa.tensor_copy(dst=chosen, src=eye[:columns, eight])
    spread, found = sbuf((nl.tile_size.pmax, length), nl.float32), sbuf((nl.tile_size.pmax, length + 1), nl.int32)
    for part in spans(length, nl.tile_size.gemm_moving_fmax):
        moved = psum((nl.tile_size.pmax, size(part)))
        nisa.nc_matmul(dst=moved, stationary=choice, moving=ones[:, part])
        nisa.tensor_copy(dst=spread[:, part], src=moved, engine=nisa.engine.scalar)
    # the processors write every 16th partition, others are read where all partitions are added up or converted
    nisa.memset(dst=found if whole else found[:, length:], value=0)
    nisa.nonzero_with_count(dst=found, src=spread, index_offset=first, padding_val=-1)
    return found


def _store(found: Any, target: Any, ends: Any) -> None:
    """Indices of a chunk behind those of the chunks before."""
    length = found.shape[1] - 1
    if target.dtype != found.dtype:
        found_as = sbuf((found.shape[0], length), target.dtype)
        nisa.tensor_copy(dst=found_as, src=found[:, :length])
        found = found_as
    for each in range(target.shape[0]):
        here = found[each * _APART : each * _APART + 1, :length]
        if ends is None:
            store(target[each], here)
            continue
        place = ends[each * _APART : each * _APART + 1]
        row = target[each : each + 1]
        behind = row.ap(pattern=[[row.shape[1], 1], [1, length]], scalar_offset=place, indirect_dim=1)
        nisa.dma_copy(dst=behind, src=here)
