"""Gathers within partitions by GpSimd: local_gather, nc_n_gather."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import uint16, uint32
from nki.core.nki_tensor import NkiTensor
from nki.spec.arrays import Arrays
from nki.spec.cost_vector import LOCAL_GATHER, N_GATHER
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import SBUF, Int, Name, Operand, SbufSrc, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_LOCAL = "nki/api/nki/isa local_gather"
_FLAT = "nki/api/nki/isa nc_n_gather"
_RUNS = (1, 2, 4, 8, 16, 32)


def _per_core(a: Any, t: Target) -> int:
    """Indices that one GpSimd core holds."""
    return int(a.index.free_size * t.gpsimd.partitions_per_core)


def _valid(a: Any, t: Target) -> int:
    """Indices that one GpSimd core uses."""
    return _per_core(a, t) if a.num_valid_indices is None else int(a.num_valid_indices)


def _gathered(a: Any, t: Target) -> int:
    """Elements that one partition receives."""
    return _valid(a, t) * int(a.num_elem_per_idx)


def _same_dtype(first: str, second: str, document: str) -> Rule:
    return Rule(
        "dtypes",
        f"{first} and {second} have the same dtype",
        lambda a, t: getattr(a, first).dtype == getattr(a, second).dtype,
        document,
        "cast with nisa.tensor_copy",
        lambda a, t: f"{first} is {getattr(a, first).dtype}, {second} is {getattr(a, second).dtype}",
    )


@instruction(
    moves_bits=True,
    engines=(Engine.gpsimd,),
    source=_LOCAL,
    rules=[
        Rule(
            "partitions",
            "dst, src_buffer and index have equally many partitions, a multiple of {t.gpsimd.partitions_per_core}",
            lambda a, t: (
                a.dst.shape[0] == a.src_buffer.shape[0] == a.index.shape[0]
                and a.index.shape[0] % t.gpsimd.partitions_per_core == 0
            ),
            _LOCAL,
            "slice the tensors to the same multiple of {t.gpsimd.partitions_per_core} partitions",
            lambda a, t: (
                f"dst has {a.dst.shape[0]} partitions, src_buffer {a.src_buffer.shape[0]}, index {a.index.shape[0]}"
            ),
        ),
        _same_dtype("dst", "src_buffer", _LOCAL),
        Rule(
            "run-length",
            f"num_elem_per_idx is one of {', '.join(str(n) for n in _RUNS)}",
            lambda a, t: a.num_elem_per_idx in _RUNS,
            _LOCAL,
            "gather shorter runs",
            lambda a, t: f"num_elem_per_idx is {a.num_elem_per_idx}",
        ),
        Rule(
            "valid-indices",
            "num_valid_indices is at least 1 and at most the indices of {t.gpsimd.partitions_per_core} partitions",
            lambda a, t: 1 <= _valid(a, t) <= _per_core(a, t),
            _LOCAL,
            "lower num_valid_indices, or pass a wider index",
            lambda a, t: f"num_valid_indices is {a.num_valid_indices}, index holds {_per_core(a, t)} per core",
        ),
        Rule(
            "index-count",
            "one core gathers with at most {t.limits.local_gather_max_indices} indices",
            lambda a, t: _valid(a, t) <= t.limits.local_gather_max_indices,
            _LOCAL,
            "gather in several steps",
            lambda a, t: f"{_valid(a, t)} indices per core",
        ),
        Rule(
            "dst-size",
            "dst holds num_valid_indices * num_elem_per_idx elements per partition",
            lambda a, t: a.dst.free_size >= _gathered(a, t),
            _LOCAL,
            "enlarge dst, or pass num_valid_indices",
            lambda a, t: f"dst holds {a.dst.free_size} elements per partition, {_gathered(a, t)} are gathered",
        ),
        Rule(
            "dst-exact",
            "dst has exactly num_valid_indices * num_elem_per_idx elements per partition, or NKI 0.6 ignores "
            "num_elem_per_idx",
            lambda a, t: a.dst.free_size <= _gathered(a, t),
            "release-notes/components/nki.rst 0.6.0, Known Issues",
            "slice dst, and pass num_valid_indices and num_elem_per_idx",
            lambda a, t: f"dst holds {a.dst.free_size} elements per partition, {_gathered(a, t)} are gathered",
            severity="warning",
        ),
    ],
    steps=LOCAL_GATHER,
)
def local_gather(
    dst: Annotated[NkiTensor, out(SBUF, partial=True)],
    src_buffer: SbufSrc,
    index: Annotated[NkiTensor, source(SBUF, (uint16,))],
    num_elem_per_idx: Int = 1,
    num_valid_indices: Annotated[int | None, Operand("int")] = None,
    name: Name = None,
) -> None:
    """Every partition gathers the elements that the indices of its group of 16 partitions name.

    The indices of a group are read down the partitions first (``index[16 * g : 16 * g + 16].T.flatten()``), and all 16
    partitions of the group use the same list. An index counts elements from the start of a partition of `src_buffer`,
    also if ``num_elem_per_idx > 1``, when it names the first of a run. Bits are moved, never cast.

    An index beyond `src_buffer` is undefined on hardware: it is reported as a warning and leaves `dst` as it was. NKI
    0.6 ignores `num_elem_per_idx` unless the sizes match (a known issue); that is not imitated, but warned of.

    Args:
        dst: SBUF, all free dimensions together hold the indices times the run; a larger one keeps its tail.
        src_buffer: SBUF, with a multiple of 16 partitions.
        index: SBUF, uint16, with the partitions of src_buffer; at most 4096 indices per group.
        num_elem_per_idx: 1, 2, 4, 8, 16 or 32 contiguous elements per index.
        num_valid_indices: how many indices of a group count; by default all.
    """


@local_gather.body
def _(a: Any, x: Arrays) -> None:
    group, run = x.target.gpsimd.partitions_per_core, a.num_elem_per_idx
    partitions, width = a.src_buffer.shape[0], a.src_buffer.free_size
    table = np.asarray(x.load_raw(a.index)).astype(np.int64).reshape(partitions // group, group, -1)
    lists = table.transpose(0, 2, 1).reshape(partitions // group, -1)[:, : _valid(a, x.target)]
    offsets = (lists[:, :, None] + np.arange(run)).reshape(partitions // group, -1).repeat(group, axis=0)
    positions = np.full((partitions, a.dst.free_size), -1, np.int64)
    positions[:, : offsets.shape[1]] = _inside(x, "local_gather", offsets, width)
    x.gather(a.dst, a.src_buffer, positions)


def _inside(x: Arrays, instruction: str, offsets: np.ndarray, width: int) -> np.ndarray:
    """Element numbers from offsets within each partition; -1 with a warning for those beyond it."""
    inside = offsets < width
    if not inside.all():
        x.warn(
            f"{instruction}.index-out-of-bounds",
            f"index {int(offsets[~inside][0])} is outside the {width} elements of a partition, which is undefined",
            "keep the indices below the elements per partition",
        )
    return np.where(inside, offsets + np.arange(len(offsets))[:, None] * width, -1)


@instruction(
    moves_bits=True,
    engines=(Engine.gpsimd,),
    source=_FLAT,
    rules=[
        Rule(
            "partitions",
            "dst, data and indices have equally many partitions",
            lambda a, t: a.dst.shape[0] == a.data.shape[0] == a.indices.shape[0],
            _FLAT,
            "slice the tensors to the same partitions",
            lambda a, t: f"dst has {a.dst.shape[0]} partitions, data {a.data.shape[0]}, indices {a.indices.shape[0]}",
        ),
        Rule(
            "elements",
            "dst has as many elements per partition as indices",
            lambda a, t: a.dst.free_size == a.indices.free_size,
            _FLAT,
            "slice or reshape dst",
            lambda a, t: f"dst has {a.dst.free_size} elements per partition, indices {a.indices.free_size}",
        ),
        _same_dtype("dst", "data", _FLAT),
    ],
    steps=N_GATHER,
)
def nc_n_gather(
    dst: Annotated[NkiTensor, out(SBUF, partial=True)],
    data: SbufSrc,
    indices: Annotated[NkiTensor, source(SBUF, (uint32,))],
    name: Name = None,
) -> None:
    """``dst[p, i] = data[p, indices[p, i]]``, with the free dimensions of every operand flattened.

    Partitions are independent. Bits are moved, never cast. An index beyond the partition is illegal; it is reported as
    a warning and leaves `dst` as it was, where hardware may do anything. It runs as one instruction per 512 elements.

    Args:
        dst: SBUF, the dtype of data, as many elements per partition as indices.
        data: SBUF, any dtype.
        indices: SBUF, uint32.
    """


@nc_n_gather.body
def _(a: Any, x: Arrays) -> None:
    offsets = np.asarray(x.load_raw(a.indices)).astype(np.int64)
    x.gather(a.dst, a.data, _inside(x, "nc_n_gather", offsets, a.data.free_size))
