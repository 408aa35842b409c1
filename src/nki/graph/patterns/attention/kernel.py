"""Attention for all heads of a batch; scores and weights never go to device memory.

128 queries at a time see all their keys: the scores of 128 queries and 8192 keys take 32 KiB of each partition. So
nothing has to be rescaled, and the largest score of a row is known before its exponentials are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.graph.emit.kit import squares
from nki.spec.sink import current_target

PARTITIONS = 128
"""Queries at a time, and keys that the second product contracts at once: the rows of the Tensor engine."""

MOST_FEATURES = 512
"""float32 in a bank of PSUM: of the result's row, or scores of one query."""

MOST_KEYS = 8192
LETTERS = "abceghijlmn"
"""Names of the indices that are looped over; q, k, d and f are queries, keys, the head's dimension and features."""

_CHUNKS = MOST_FEATURES // PARTITIONS
Place = Mapping[str, int]


@nki.jit
def attention(  # noqa: PLR0913 - the facts of a pattern are arguments by name
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    q_dims: str = "qd",
    k_dims: str = "kd",
    v_dims: str = "kf",
    out_dims: str = "qf",
    mask_dims: str = "",
    scale: float = 1.0,
    causal: int | None = None,
    hidden: float | None = None,
    empty: bool = False,
    dtype: str = "float32",
) -> Any:
    """``softmax(masked(scale * q @ k.T)) @ v`` for each value of the indices that are looped over.

    Args:
        q, k, v: of float32, bfloat16 or float16.
        mask: truth values as bytes, or numbers that are added.
        q_dims, k_dims, v_dims, out_dims, mask_dims: a letter for each dimension, see `LETTERS`. A tensor without a
            letter is the same for all its values; keys come before features.
        scale: of the scores, before the mask.
        causal: how many keys the first query sees besides the first one, each later one one more; None: all.
        hidden: the score where a truth value is false; None if the mask's numbers are added.
        empty: the result of a query without any score above minus infinity is 0, not NaN.
        dtype: of the result.

    Returns:
        A tensor with the dimensions `out_dims`.
    """
    sizes = dict(zip(q_dims + k_dims + v_dims, (*q.shape, *k.shape, *v.shape), strict=True))
    out = nl.ndarray(tuple(sizes[letter] for letter in out_dims), dtype=dtype, buffer=nl.shared_hbm)
    tensors = _Tensors(_Named(q, q_dims), _Named(k, k_dims), _Named(v, v_dims), _Named(out, out_dims), None, sizes)
    if mask is not None:
        tensors.mask = _Named(mask, mask_dims)
    rules = _Rules(scale, causal, hidden, empty)
    shared = [letter for letter in out_dims if letter in k_dims and letter != "f"]
    groups = [letter for letter in out_dims if letter not in shared and letter not in "qf"]
    for outer in _places(shared, sizes):
        keys, values = _load_keys(tensors, outer), _load_values(tensors, outer)
        for inner in _places(groups, sizes):
            for start in range(0, sizes["q"], PARTITIONS):
                _attend(tensors, {**outer, **inner}, keys, values, start, rules)
    return out


@dataclass
class _Named:
    """A tensor in device memory and the letters of its dimensions."""

    tensor: NkiTensor
    dims: str

    def view(self, place: Place, spans: Mapping[str, tuple[int, int]], rows: str, columns: str) -> NkiTensor:
        """(rows, columns) at a place of the loops; what has no rows is repeated."""
        strides: dict[str, int] = {}
        step = 1
        shape = self.tensor.shape if self.dims else ()  # a scalar has one element in device memory
        for letter, size in zip(reversed(self.dims), reversed(shape), strict=True):
            strides[letter] = step
            step *= size
        offset = sum(strides[letter] * at for letter, at in place.items() if letter in strides)
        offset += sum(strides.get(letter, 0) * spans[letter][0] for letter in (rows, columns))
        return self.tensor.ap([[strides.get(letter, 0), spans[letter][1]] for letter in (rows, columns)], offset=offset)


@dataclass
class _Tensors:
    """What is read and written, and the size of each index."""

    q: _Named
    k: _Named
    v: _Named
    out: _Named
    mask: _Named | None
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class _Rules:
    """What becomes of scores; see `attention`."""

    scale: float
    causal: int | None
    hidden: float | None
    empty: bool


def _places(letters: Sequence[str], sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Every combination of values of some indices."""
    ranges = product(*(range(sizes[letter]) for letter in letters))
    return [dict(zip(letters, values, strict=True)) for values in ranges]


def _tile(rows: int, columns: int, dtype: Any, buffer: Any = nl.sbuf) -> NkiTensor:
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


def _load_keys(tensors: _Tensors, place: Place) -> NkiTensor:
    """(head, keys)."""
    return _load_heads(tensors.k, place, "k", 0, tensors.sizes["k"], tensors.sizes["d"])


def _load_heads(named: _Named, place: Place, letter: str, start: int, count: int, head: int) -> NkiTensor:
    """(head, queries or keys): with the head's dimension on the partitions, over which the Tensor engine contracts."""
    result = _tile(head, count, named.tensor.dtype)
    if named.dims.index("d") < named.dims.index(letter):
        nisa.dma_copy(dst=result, src=named.view(place, {"d": (0, head), letter: (start, count)}, "d", letter))
        return result
    if not _moves_bits():
        _turned_by_vector(result, named, place, letter, start)
        return result
    for first in range(0, count, MOST_FEATURES):
        width = min(MOST_FEATURES, count - first)
        turned = _tile(head, width, named.tensor.dtype, nl.psum)
        for at in range(0, width, PARTITIONS):
            rows = min(PARTITIONS, width - at)
            piece = _tile(rows, head, named.tensor.dtype)
            spans = {letter: (start + first + at, rows), "d": (0, head)}
            nisa.dma_copy(dst=piece, src=named.view(place, spans, letter, "d"))
            nisa.nc_transpose(dst=turned[0:head, at : at + rows], data=piece, engine=nisa.engine.tensor)
        nisa.tensor_copy(dst=result[0:head, first : first + width], src=turned)
    return result


def _moves_bits() -> bool:
    """Whether the Tensor engine transposes bits; else it multiplies by 0 and 1, and infinities and NaN spoil others."""
    return current_target().has("transpose_exact")


def _turned_by_vector(result: NkiTensor, named: _Named, place: Place, letter: str, start: int) -> None:
    """A block of queries or keys with the head's dimension on partitions, turned in squares by Vector."""
    head, count = result.shape
    for at in range(0, count, PARTITIONS):
        rows = min(PARTITIONS, count - at)
        piece = _tile(squares.padded(rows), squares.padded(head), result.dtype)
        nisa.memset(dst=piece, value=0)
        spans = {letter: (start + at, rows), "d": (0, head)}
        nisa.dma_copy(dst=piece[0:rows, 0:head], src=named.view(place, spans, letter, "d"))
        turned = _tile(piece.shape[1], piece.shape[0], result.dtype)
        squares.transpose(turned, piece)
        nisa.tensor_copy(dst=result[0:head, at : at + rows], src=turned[0:head, 0:rows])


def _load_values(tensors: _Tensors, place: Place) -> list[NkiTensor]:
    """(keys, features) in chunks of 128 keys."""
    chunks, features = [], tensors.sizes["f"]
    for start in range(0, tensors.sizes["k"], PARTITIONS):
        count = min(PARTITIONS, tensors.sizes["k"] - start)
        chunk = _tile(count, features, tensors.v.tensor.dtype)
        nisa.dma_copy(dst=chunk, src=tensors.v.view(place, {"k": (start, count), "f": (0, features)}, "k", "f"))
        chunks.append(chunk)
    return chunks


def _attend(
    tensors: _Tensors, place: Place, keys: NkiTensor, values: Sequence[NkiTensor], start: int, rules: _Rules
) -> None:
    """128 queries from `start` on."""
    rows = min(PARTITIONS, tensors.sizes["q"] - start)
    seen = tensors.sizes["k"]
    if rules.causal is not None:
        seen = min(seen, start + rows + rules.causal)
    queries = _load_heads(tensors.q, place, "q", start, rows, tensors.sizes["d"])
    scores = _scores(tensors, place, queries, keys, (start, rows, seen), rules)
    weights, total = _weights(scores, values[0].dtype)
    output = _weighted(weights, values)
    inverse = _tile(rows, 1, nl.float32)
    if rules.empty:  # exponentials are not negative, so that only a sum of zeros is changed
        nisa.tensor_scalar(dst=total, data=total, op0=nl.maximum, operand0=2.0**-126)
    nisa.reciprocal(dst=inverse, data=total)
    result = _tile(rows, tensors.sizes["f"], tensors.out.tensor.dtype)
    nisa.tensor_scalar(dst=result, data=output, op0=nl.multiply, operand0=inverse)
    spans = {"q": (start, rows), "f": (0, tensors.sizes["f"])}
    nisa.dma_copy(dst=tensors.out.view(place, spans, "q", "f"), src=result)


def _scores(
    tensors: _Tensors, place: Place, queries: NkiTensor, keys: NkiTensor, span: tuple[int, int, int], rules: _Rules
) -> NkiTensor:
    """(queries, keys that are seen) in float32, masked."""
    start, rows, seen = span
    scores = _tile(rows, seen, nl.float32)
    for first in range(0, seen, MOST_FEATURES):
        width = min(MOST_FEATURES, seen - first)
        piece = _tile(rows, width, nl.float32, nl.psum)
        nisa.nc_matmul(dst=piece, stationary=queries, moving=keys[0 : keys.shape[0], first : first + width])
        here = scores[0:rows, first : first + width]
        nisa.activation(dst=here, op=nl.copy, data=piece, scale=rules.scale)
        if tensors.mask is not None:
            _apply_mask(tensors.mask, here, place, (start, first), rules.hidden)
        if rules.causal is not None and first + width - 1 > start + rules.causal:
            _hide_future(here, start + rules.causal - first)
    return scores


def _apply_mask(mask: _Named, scores: NkiTensor, place: Place, at: tuple[int, int], hidden: float | None) -> None:
    rows, width = scores.shape
    held = _tile(rows, width, mask.tensor.dtype)
    nisa.dma_copy(dst=held, src=mask.view(place, {"q": (at[0], rows), "k": (at[1], width)}, "q", "k"))
    if hidden is None:
        nisa.tensor_tensor(dst=scores, data1=scores, data2=held, op=nl.add)
        return
    unseen = _tile(rows, width, held.dtype)
    nisa.tensor_scalar(dst=unseen, data=held, op0=nl.equal, operand0=0)
    nisa.tensor_copy_predicated(dst=scores, src=hidden, predicate=unseen)


def _hide_future(scores: NkiTensor, ahead: int) -> None:
    """Minus infinity where the key comes after the query; `ahead` is the first query's last key minus the first key."""
    nisa.affine_select(
        dst=scores,
        pattern=[[-1, scores.shape[1]]],
        channel_multiplier=1,
        offset=ahead,
        on_true_tile=scores,
        on_false_value=float("-inf"),
        cmp_op=nl.greater_equal,
    )


def _weights(scores: NkiTensor, dtype: Any) -> tuple[NkiTensor, NkiTensor]:
    """``exp(score - maximum)`` and its sum for each query, taken before the weights are rounded."""
    rows, seen = scores.shape
    maximum, bias, total = (_tile(rows, 1, nl.float32) for _ in range(3))
    nisa.tensor_reduce(dst=maximum, op=nl.maximum, data=scores, axis=[1])
    # A row of minus infinities has the maximum -FP32_MAX, so that its exponentials are 0 and not NaN.
    nisa.tensor_scalar(dst=bias, data=maximum, op0=nl.maximum, operand0=-FP32_MAX, op1=nl.multiply, operand1=-1.0)
    weights = _tile(rows, seen, dtype)
    nisa.activation(
        dst=weights,
        op=nl.exp,
        data=scores,
        bias=bias,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return (weights if _moves_bits() else _without_nan(weights)), total


def _without_nan(weights: NkiTensor) -> NkiTensor:
    """Zeros instead of NaN, which would spoil other queries when they are transposed; the sum of their row is NaN."""
    rows, seen = weights.shape
    defined = _tile(rows, seen, nl.uint8)
    nisa.tensor_tensor(dst=defined, data1=weights, data2=weights, op=nl.equal)
    kept = _tile(rows, seen, weights.dtype)
    nisa.memset(dst=kept, value=0)
    nisa.tensor_copy_predicated(dst=kept, src=weights, predicate=defined)
    return kept


def _weighted(weights: NkiTensor, values: Sequence[NkiTensor]) -> NkiTensor:
    """``weights @ values`` in PSUM, (queries, features), not yet divided by the sums of the weights."""
    rows, seen = weights.shape
    output = _tile(rows, values[0].shape[1], nl.float32, nl.psum)
    for first in range(0, seen, MOST_FEATURES):
        counts = [min(PARTITIONS, seen - at) for at in range(first, min(first + MOST_FEATURES, seen), PARTITIONS)]
        turned = _tile(PARTITIONS, _CHUNKS * rows, weights.dtype, nl.psum)
        held = _tile(PARTITIONS, _CHUNKS * rows, weights.dtype)
        for chunk, count in enumerate(counts):
            at = first + chunk * PARTITIONS
            nisa.nc_transpose(
                dst=turned[0:count, chunk * rows : (chunk + 1) * rows],
                data=weights[0:rows, at : at + count],
                engine=nisa.engine.tensor,
            )
        whole = counts[-1] == PARTITIONS
        for chunk, count in [(0, PARTITIONS)] if whole else list(enumerate(counts)):
            columns = slice(chunk * rows, (len(counts) if whole else chunk + 1) * rows)
            nisa.tensor_copy(dst=held[0:count, columns], src=turned[0:count, columns])
        for chunk, count in enumerate(counts):
            moving = values[(first // PARTITIONS) + chunk]
            nisa.nc_matmul(
                dst=output,
                stationary=held[0:count, chunk * rows : (chunk + 1) * rows],
                moving=moving[0:count, 0 : moving.shape[1]],
                accumulate=first + chunk > 0,
            )
    return output
