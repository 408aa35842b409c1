"""Cross entropy of logits over a large vocabulary, and its gradient::

    lse[i]     = log(sum over v of exp(logits[i, v]))
    loss[i]    = lse[i] - logits[i, target[i]]

    grad[i, v] = scale * (exp(logits[i, v] - lse[i]) - (v == target[i])),  scale = 1 / positions or 1

Layouts: logits (positions, vocabulary), targets (positions,). Dtypes: bfloat16 or float32, targets int32; what lies
between is float32, results round once. A logit of -inf counts as 0. Limits: a target is a number of the vocabulary.

Plan: a piece of a row is shifted by its own largest logit, so that pieces wait for nothing, and their sums are put
together at the end of the row. GpSimd takes the larger one of each two logits, Vector the largest of what is left, and
Scalar exponentials with their sum, which bounds the kernel for bfloat16, as transfers do for float32. The gradient is
one pass of Scalar, with the logarithm of `scale` in the bias, so that transfers bound it; the logit of the target is
gathered before, and what it becomes is scattered after that.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867.
"""

from __future__ import annotations

from math import log
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.rows import RowBlock, row_blocks
from nkilib.streaming import load, result, sbuf, spans, store

_PIECE_BYTES = 8192
"""Of a row in one transfer at most."""
_ALL = 2**31 - 1
"""More than there is of anything."""
_LOWEST = -3.0e38
"""Stands for the largest of logits that are all -inf: from it they have a distance."""
_FLOATS = (nl.bfloat16, nl.float32)


@nki.jit
def cross_entropy_forward(
    logits_hbm: nl.NkiTensor,
    targets_hbm: nl.NkiTensor,
    positions_per_batch: int = 32,
    chunk_size: int = 32768,
    dtype: Any = nl.bfloat16,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """Losses of all positions; the cores of the launch divide them.

    Args:
        logits_hbm: (positions, vocabulary) in HBM.
        targets_hbm: (positions,) int32, each at least 0 and less than the vocabulary.
        positions_per_batch, chunk_size: their product is the number of logits of a piece at most. Positions go to
            partitions, 128 at a time, and what is left for each is cut smaller where transfers gain nothing by more.
        dtype: of the results.

    Returns:
        The losses and the logarithms of the sums, (positions,) each.

    Raises:
        KernelLimit: shapes, dtypes, sizes that are not positive.
    """
    _check(logits_hbm, targets_hbm, (dtype,), positions_per_batch=positions_per_batch, chunk_size=chunk_size)
    return _forward(logits_hbm, targets_hbm, positions_per_batch * chunk_size, (dtype, dtype))


@nki.jit
def cross_entropy_backward(
    logits_hbm: nl.NkiTensor,
    targets_hbm: nl.NkiTensor,
    lse_state_hbm: nl.NkiTensor,
    reduction: str = "mean",
    positions_per_batch: int = 32,
    chunk_size: int = 32768,
    dtype: Any = nl.bfloat16,
    inplace: bool = True,
) -> nl.NkiTensor:
    """Gradient of the mean or the sum of all losses; the cores of the launch divide the positions.

    Args:
        logits_hbm, targets_hbm, positions_per_batch, chunk_size: as `cross_entropy_forward` got them.
        lse_state_hbm: what it returned beside the losses, (positions,), bfloat16 or float32.
        reduction: "mean" or "sum".
        dtype: of the gradient, if it is a tensor of its own.
        inplace: write the gradient over the logits, in their dtype.

    Returns:
        (positions, vocabulary): the gradient of the logits, or `logits_hbm` itself, which is the gradient now.

    Raises:
        KernelLimit: as `cross_entropy_forward`, and another reduction, shape or dtype of the state.
    """
    _check(logits_hbm, targets_hbm, (dtype,), positions_per_batch=positions_per_batch, chunk_size=chunk_size)
    limits.one_of("reduction", reduction, ("mean", "sum"))
    limits.shape("lse_state_hbm", lse_state_hbm, targets_hbm.shape)
    limits.dtype("lse_state_hbm", lse_state_hbm, _FLOATS)
    out = logits_hbm if inplace else result(logits_hbm.shape, dtype)
    scale = 1.0 / logits_hbm.shape[0] if reduction == "mean" else 1.0
    parts = _pieces(logits_hbm, positions_per_batch * chunk_size)
    for block in _blocks(logits_hbm):
        targets = _Targets(block, logits_hbm, targets_hbm)
        shift = sbuf((block.partitions, 1), nl.float32)  # exp(x + shift) is scale * softmax
        state = load(lse_state_hbm[block.span])
        nisa.tensor_scalar(dst=shift, data=state, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=log(scale))
        for part in parts:
            tile = load(logits_hbm[block.span, part])
            gradient = sbuf(tile.shape, out.dtype)
            nisa.activation(dst=gradient, op=nl.exp, data=tile, bias=shift)
            store(out[block.span, part], gradient)
        targets.put(out, _less(targets.logits, shift, scale, out.dtype))
    return out


# ------------------------------------------------------------------------------------------------------- for frameworks


@nki.jit
def _forward_with_state(
    logits: nl.NkiTensor, targets: nl.NkiTensor, together: int, dtype: Any
) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
    """Losses and logarithms in one dtype, and the logarithms once more in float32, from which gradients are exact."""
    return _forward(logits, targets, together, (dtype, dtype, nl.float32))


@nki.jit
def cross_entropy_of_rows(
    logits: nl.NkiTensor,
    targets: nl.NkiTensor,
    lse: nl.NkiTensor,
    of_loss: nl.NkiTensor,
    of_lse: nl.NkiTensor | None = None,
) -> nl.NkiTensor:
    """The gradient of the logits, like them, from those of the losses and of the logarithms, (positions,) each."""
    out = result(logits.shape, logits.dtype)
    for block in _blocks(logits):
        at = _Targets(block, logits, targets)
        shift = sbuf((block.partitions, 1), nl.float32)
        scale = loss_scale = load(of_loss[block.span])
        if of_lse is not None:
            scale = sbuf((block.partitions, 1), nl.float32)
            nisa.tensor_tensor(dst=scale, data1=loss_scale, data2=load(of_lse[block.span]), op=nl.add)
        nisa.tensor_scalar(dst=shift, data=load(lse[block.span]), op0=nl.multiply, operand0=-1.0)
        for part in _pieces(logits, _ALL):
            gradient = _shares(load(logits[block.span, part]), shift, scale)
            store(out[block.span, part], _converted(gradient, out.dtype))
        share = _shares(at.logits, shift, scale)
        nisa.tensor_tensor(dst=share, data1=share, data2=loss_scale, op=nl.subtract)
        at.put(out, _converted(share, out.dtype))
    return out


def _kept(
    logits_hbm: Any, targets_hbm: Any, positions_per_batch: int = 32, chunk_size: int = 32768, dtype: Any = nl.bfloat16
) -> tuple[Any, Any]:
    *results, exact = _forward_with_state(logits_hbm, targets_hbm, positions_per_batch * chunk_size, dtype)
    return tuple(results), (logits_hbm, targets_hbm, exact)


def _gradient(residuals: Any, gradient: Any) -> tuple[Any, None]:
    return cross_entropy_of_rows(*residuals, *gradient), None


cross_entropy_forward.defvjp(_kept, _gradient)


# ---------------------------------------------------------------------------------------------------------------- parts


def _check(logits: Any, targets: Any, dtypes: tuple[Any, ...], **sizes: int) -> None:
    limits.generation("cross entropy", 3, "DMA picks logits by a tensor of targets there")
    limits.shape("targets_hbm", targets, ("positions",), limits.shape("logits_hbm", logits, ("positions", "V")))
    limits.dtype("logits_hbm", logits, _FLOATS)
    limits.dtype("targets_hbm", targets, (nl.int32,))
    for dtype in dtypes:
        limits.one_of("dtype", dtype, _FLOATS)
    for name, size_ in sizes.items():
        limits.between(name, size_, 1, nl.tile_size.pmax if name == "positions_per_batch" else _ALL)


def _blocks(logits: Any) -> list[RowBlock]:
    """Positions of this core, one for each partition."""
    return row_blocks(logits.shape[0], 1, tile_bytes=1)


def _pieces(logits: Any, together: int) -> list[slice]:
    """Pieces of the vocabulary, with at most so many logits of 128 positions."""
    most = min(together // int(nl.tile_size.pmax), _PIECE_BYTES // logits.dtype.itemsize)
    return spans(logits.shape[1], max(1, most))


def _forward(logits: Any, targets: Any, together: int, dtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Losses in the first dtype, and the logarithms of the sums in all others."""
    loss, *states = (result(targets.shape, dtype) for dtype in dtypes)
    parts = _pieces(logits, together)
    for block in _blocks(logits):
        at = _Targets(block, logits, targets)
        lse = _log_sum(block, logits, parts)
        difference = sbuf(lse.shape, loss.dtype)
        nisa.tensor_tensor(dst=difference, data1=lse, data2=at.logits, op=nl.subtract)
        store(loss[block.span], difference)
        for state in states:
            store(state[block.span], _converted(lse, state.dtype))
    return loss, *states


def _log_sum(block: RowBlock, logits: Any, parts: list[slice]) -> Any:
    """Logarithm of the sum of exponentials of each position of a block: (partitions, 1) in float32.

    With ``below`` the negative of a piece's largest logit, and ``least`` the least of those,
    ``sum(exp(x)) = sum over pieces of exp(least - below) * sum(exp(x + below)) * exp(-least)``.
    """
    shape = (block.partitions, len(parts))
    below, sums, weights = (sbuf(shape, nl.float32) for _ in range(3))
    for place, part in enumerate(parts):
        tile, here = load(logits[block.span, part]), slice(place, place + 1)
        _negative_largest(tile, below[:, here])
        unused = sbuf(tile.shape, nl.bfloat16)
        nisa.activation_reduce(
            dst=unused, op=nl.exp, data=tile, bias=below[:, here], reduce_op=nl.add, reduce_res=sums[:, here]
        )
    least, total, lse = (sbuf((block.partitions, 1), nl.float32) for _ in range(3))
    nisa.tensor_reduce(dst=least, op=nl.minimum, data=below, axis=[1])
    nisa.activation(dst=weights, op=nl.exp, data=below, scale=-1.0, bias=least)
    nisa.tensor_tensor(dst=weights, data1=weights, data2=sums, op=nl.multiply)
    nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=[1])
    nisa.activation(dst=lse, op=nl.log, data=total)
    nisa.tensor_tensor(dst=lse, data1=lse, data2=least, op=nl.subtract)
    return lse


def _negative_largest(tile: Any, into: Any) -> None:
    """The negative of each row's largest element; the halves, which share one if their number is odd, are compared."""
    partitions, columns = tile.shape
    half = (columns + 1) // 2
    larger = sbuf((partitions, half), tile.dtype)
    halves = {"data1": tile[:, :half], "data2": tile[:, columns - half :]}
    nisa.tensor_tensor(dst=larger, op=nl.maximum, engine=nisa.engine.gpsimd, **halves)
    nisa.tensor_reduce(dst=into, op=nl.maximum, data=larger, axis=[1])
    nisa.tensor_scalar(dst=into, data=into, op0=nl.maximum, operand0=_LOWEST, op1=nl.multiply, operand1=-1.0)


class _Targets(nl.NKIObject):
    """The targets of a block of positions: where they are in the matrix of logits, and the logits themselves."""

    def __init__(self, block: RowBlock, logits: Any, targets: Any) -> None:
        columns = logits.shape[1]
        self.block = block
        self.places = sbuf((block.partitions, 1), nl.int32)
        starts = sbuf((block.partitions, 1), nl.int32)
        nisa.iota(dst=starts, pattern=[[1, 1]], channel_multiplier=columns)
        nisa.tensor_tensor(dst=self.places, data1=starts, data2=load(targets[block.span]), op=nl.add)
        self.logits = sbuf((block.partitions, 1), logits.dtype)
        nisa.dma_copy(dst=self.logits, src=self._elements(logits))

    def put(self, target: Any, values: Any) -> None:
        """Write values (partitions, 1) to these places of a matrix."""
        nisa.dma_copy(dst=self._elements(target), src=values)

    def _elements(self, matrix: Any) -> Any:
        """One element of each row of the block."""
        rows = matrix[self.block.span]
        return rows.reshape((rows.size, 1)).vector_select(0, self.places)


def _shares(tile: Any, shift: Any, scale: Any) -> Any:
    """``exp(tile + shift) * scale`` in float32, where both are of rows."""
    shares = sbuf(tile.shape, nl.float32)
    nisa.activation(dst=shares, op=nl.exp, data=tile, bias=shift)
    nisa.tensor_scalar(dst=shares, data=shares, op0=nl.multiply, operand0=scale)
    return shares


def _less(tile: Any, shift: Any, scale: float, dtype: Any) -> Any:
    """``exp(tile + shift) - scale``."""
    share, less = sbuf(tile.shape, nl.float32), sbuf(tile.shape, dtype)
    nisa.activation(dst=share, op=nl.exp, data=tile, bias=shift)
    nisa.tensor_scalar(dst=less, data=share, op0=nl.subtract, operand0=scale)
    return less


def _converted(tile: Any, dtype: Any) -> Any:
    """A tile in another dtype; itself if it has it already."""
    if tile.dtype == dtype:
        return tile
    other = sbuf(tile.shape, dtype)
    nisa.tensor_copy(dst=other, src=tile)
    return other
