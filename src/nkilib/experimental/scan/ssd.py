"""State space duality of Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024): a scan as products of chunks.

With ``cs`` the running sum of ``dt * A`` within a chunk of Q steps, for each head::

    y[t]  = sum over s <= t of (C[t] . B[s]) * exp(cs[t] - cs[s]) * dt[s] * x[s]
            + exp(cs[t]) * C[t] @ state                                    (+ D * x[t])
    state = exp(cs[Q]) * state + sum over s of B[s] * exp(cs[Q] - cs[s]) * dt[s] * x[s]

Differences of sums are taken before the exponential, and those above the diagonal are hidden before it, so that nothing
overflows whatever A is. Steps s lie on partitions: the Tensor engine makes ``B C^T`` once for all heads, puts each
head's ``cs`` on all partitions (a product with a column of the identity, in float32), and multiplies; Scalar makes the
exponentials; Vector and GpSimd share the weights. B and C serve all heads that fill a bank of PSUM together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.scan.linear_scan import scan

_FLOATS = (nl.float32, nl.bfloat16, nl.float16)
_HIDDEN = -1.0e30
"""Added to a difference of sums above the diagonal: its exponential is 0."""


@nki.jit
def ssd(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    chunk_size: int = 128,
    D: Any = None,
    initial_state: Any = None,
    causal_mask: Any = None,
) -> tuple[Any, Any]:
    """The outputs and the last states.

    Args:
        x: ``(batch, nheads, seqlen, headdim)``, float32, bfloat16 or float16; headdim at most 512.
        dt: ``(batch, nheads, seqlen)``, positive.
        A: ``(nheads,)``, negative where the recurrence is to be stable.
        B, C: ``(batch, seqlen, dstate)`` in the dtype of x, shared by all heads; dstate at most 128.
        chunk_size: steps that are multiplied together, at most 128. The last chunk may be shorter.
        D: ``(nheads,)``: the weight of x itself.
        initial_state: ``(batch, nheads, dstate, headdim)``; 0 by default.
        causal_mask: ``(chunk_size, chunk_size)``: further weights of the pairs (t, s); those above the diagonal never
            count. The documented call passes the lower triangle of ones, which is the default.

    Returns:
        y, like x, and the states after the last step, ``(batch, nheads, dstate, headdim)`` in float32.
    """
    sizes = _checked(x, dt, A, B, C, chunk_size, D, initial_state, causal_mask)
    y = streaming.result(x.shape, x.dtype)
    last = streaming.result((sizes["batch"], sizes["nheads"], sizes["dstate"], sizes["headdim"]), nl.float32)
    together = min(nl.tile_size.pmax, nl.tile_size.psum_bank_fmax // sizes["headdim"])
    weights = None if causal_mask is None else streaming.load_transposed(causal_mask, nl.float32)[0]
    for heads in _groups(streaming.spans(sizes["nheads"], together, shared=True)):
        held = _heads(A, D, heads, weights, chunk_size)
        for batch in range(sizes["batch"]):
            states = _first_states(initial_state, batch, heads, sizes)
            for steps in streaming.spans(sizes["seqlen"], chunk_size):
                chunk = _chunk(B[batch, steps, :], C[batch, steps, :], dt[batch, heads, steps], held)
                for part in streaming.spans(streaming.size(heads), together):
                    place = slice(heads.start + part.start, heads.start + part.stop)
                    inputs = streaming.load(x[batch, place, steps, :].permute((1, 0, 2)))
                    made = _outputs(inputs, chunk, states, part, held)
                    streaming.store(y[batch, place, steps, :].permute((1, 0, 2)), made)
                    _advance(states, inputs, chunk, part)
            streaming.store(last[batch, heads].permute((1, 0, 2)), states)
    return y, last


def _checked(
    x: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: int, D: Any, initial_state: Any, causal_mask: Any
) -> dict[str, int]:
    sizes = limits.shape("x", x, ("batch", "nheads", "seqlen", "headdim"))
    limits.shape("dt", dt, ("batch", "nheads", "seqlen"), sizes)
    limits.shape("A", A, ("nheads",), sizes)
    limits.shape("B", B, ("batch", "seqlen", "dstate"), sizes)
    limits.shape("C", C, ("batch", "seqlen", "dstate"), sizes)
    limits.between("chunk_size", chunk_size, 1, nl.tile_size.pmax, "steps lie on partitions")
    limits.between("dstate", sizes["dstate"], 1, nl.tile_size.pmax, "states lie on partitions")
    limits.between("headdim", sizes["headdim"], 1, nl.tile_size.psum_bank_fmax, "a product fills one bank of PSUM")
    for name, tensor, shape in (
        ("D", D, ("nheads",)),
        ("initial_state", initial_state, ("batch", "nheads", "dstate", "headdim")),
        ("causal_mask", causal_mask, (chunk_size, chunk_size)),
    ):
        if tensor is not None:
            limits.shape(name, tensor, shape, sizes)
    limits.dtype("x", x, _FLOATS)
    limits.same_dtype(x=x, B=B, C=C)
    return sizes


def _groups(spans: list[slice]) -> list[slice]:
    """Heads that are handled together: at most 128, because the running sums of each lie on a partition."""
    found: list[slice] = []
    for span in spans:
        if found and span.stop - found[-1].start <= nl.tile_size.pmax:
            found[-1] = slice(found[-1].start, span.stop)
        else:
            found.append(span)
    return found


@dataclass
class _Heads:
    """What stays for a group of heads, all in SBUF.

    Attributes:
        decay: A as a column.
        skip: D on all partitions, or None.
        identity: in float32.
        hidden: what is added to differences of sums, ``(s, t)``.
        weights: of the pairs, ``(s, t)``, or None.
    """

    decay: Any
    skip: Any
    identity: Any
    hidden: Any
    weights: Any


def _heads(A: Any, D: Any, heads: slice, weights: Any, chunk: int) -> _Heads:
    above = np.where(np.tri(chunk, dtype=bool).T, 0.0, _HIDDEN).astype(np.float32)
    return _Heads(
        decay=streaming.load(A[heads], nl.float32),
        skip=None if D is None else streaming.load_repeated(D[heads], nl.tile_size.pmax, nl.float32),
        identity=nl.shared_identity_matrix(nl.tile_size.pmax, dtype=nl.float32),
        hidden=streaming.load(nl.shared_constant(above)),
        weights=weights,
    )


@dataclass
class _Chunk:
    """What the heads of a group share in a chunk of Q steps.

    Attributes:
        b: B ``(Q, dstate)``.
        c: C transposed, ``(dstate, Q)``.
        scores: ``B C^T``, ``(s, t)`` in float32.
        sums: cs, ``(heads, Q)`` in float32.
        sums_down, dt, exp_sums, rest: cs, dt, ``exp(cs)`` and ``dt * exp(cs[Q] - cs)``, ``(Q, heads)`` in float32.
        decay: ``exp(cs[Q])`` on all partitions, ``(dstate, heads)``.
    """

    b: Any
    c: Any
    scores: Any
    sums: Any
    sums_down: Any
    dt: Any
    exp_sums: Any
    rest: Any
    decay: Any


def _chunk(b: Any, c: Any, dt: Any, held: _Heads) -> _Chunk:
    steps, states = b.shape
    step = streaming.load(dt, nl.float32)
    sums = scan(_ones(step.shape), _scaled(step, held.decay), None)
    end = sums[:, steps - 1 : steps]
    rest = streaming.sbuf(step.shape, nl.float32)
    nisa.activation(dst=rest, op=nl.exp, data=sums, scale=-1.0, bias=end)
    nisa.tensor_tensor(dst=rest, data1=rest, data2=step, op=nl.multiply)
    sums_down = streaming.transpose(sums)
    exp_sums = streaming.sbuf(sums_down.shape, nl.float32)
    nisa.activation(dst=exp_sums, op=nl.exp, data=sums_down)
    (turned,) = streaming.load_transposed(c)
    return _Chunk(
        b=streaming.load(b),
        c=turned,
        scores=_scores(b, turned, held.weights),
        sums=sums,
        sums_down=sums_down,
        dt=streaming.transpose(step),
        exp_sums=exp_sums,
        rest=streaming.transpose(rest),
        decay=_spread(end, states, held),
    )


def _scores(b: Any, c: Any, weights: Any) -> Any:
    """``B C^T`` as ``(s, t)``, times the weights of the pairs, if there are any."""
    steps = b.shape[0]
    total = streaming.contract(streaming.load_transposed(b), [c], streaming.psum((steps, steps)))
    if weights is None:
        return streaming.copied(total)
    scores = streaming.sbuf((steps, steps), nl.float32)
    nisa.tensor_tensor(dst=scores, data1=total, data2=weights[0:steps, 0:steps], op=nl.multiply)
    return scores


def _ones(shape: tuple[int, ...]) -> Any:
    return streaming.filled(shape, nl.float32, 1.0)


def _scaled(tile: Any, column: Any) -> Any:
    made = streaming.sbuf(tile.shape, nl.float32)
    nisa.tensor_scalar(dst=made, data=tile, op0=nl.multiply, operand0=column)
    return made


def _spread(end: Any, states: int, held: _Heads) -> Any:
    """``exp`` of a column ``(heads, 1)`` on all partitions: a product of ones with the column on the diagonal."""
    heads = end.shape[0]
    factor = streaming.sbuf((heads, 1), nl.float32)
    nisa.activation(dst=factor, op=nl.exp, data=end)
    diagonal = _scaled(held.identity[0:heads, 0:heads], factor)
    return streaming.copied(streaming.contract([_ones((heads, states))], [diagonal], streaming.psum((states, heads))))


def _first_states(initial: Any, batch: int, heads: slice, sizes: dict[str, int]) -> Any:
    """``(dstate, heads, headdim)`` in float32."""
    if initial is not None:
        return streaming.load(initial[batch, heads].permute((1, 0, 2)), nl.float32)
    return streaming.filled((sizes["dstate"], streaming.size(heads), sizes["headdim"]), nl.float32, 0.0)


def _per_head(tile: Any, columns: Any, dtype: Any, engine: Any = nisa.engine.vector) -> Any:
    """``(rows, heads, headdim)`` times a number for each row and head, ``(rows, heads)``."""
    made = streaming.sbuf(tile.shape, dtype)
    wide = columns.expand_dim(2).broadcast(2, tile.shape[2])
    nisa.tensor_tensor(dst=made, data1=tile, data2=wide, op=nl.multiply, engine=engine)
    return made


def _outputs(x: Any, chunk: _Chunk, states: Any, part: slice, held: _Heads) -> Any:
    """y of some heads, ``(Q, heads, headdim)``, from the states before the chunk."""
    inputs = _per_head(x, chunk.dt[:, part], x.dtype, nisa.engine.gpsimd)
    inside = streaming.psum(x.shape)
    for head in range(x.shape[1]):
        weights = _weights(chunk, part.start + head, held, x.dtype)
        nisa.nc_matmul(dst=inside[:, head, :], stationary=weights, moving=inputs[:, head, :])
    before = streaming.contract([chunk.c], [streaming.copied(states[:, part, :], x.dtype)], streaming.psum(x.shape))
    total = _per_head(before, chunk.exp_sums[:, part], nl.float32)
    if held.skip is not None:
        added = _per_head(x, held.skip[0 : x.shape[0], part], nl.float32, nisa.engine.gpsimd)
        nisa.tensor_tensor(dst=total, data1=total, data2=added, op=nl.add, engine=nisa.engine.gpsimd)
    y = streaming.sbuf(x.shape, x.dtype)
    nisa.tensor_tensor(dst=y, data1=total, data2=inside, op=nl.add)
    return y


def _weights(chunk: _Chunk, head: int, held: _Heads, dtype: Any) -> Any:
    """``(B C^T)[s, t] * exp(cs[t] - cs[s])`` for s <= t, else 0."""
    heads, steps = chunk.sums.shape
    row = streaming.psum((steps, steps))
    select = held.identity[0:heads, head : head + 1].broadcast(1, steps)
    nisa.nc_matmul(dst=row, stationary=select, moving=chunk.sums)
    differences = streaming.sbuf((steps, steps), nl.float32)
    nisa.scalar_tensor_tensor(
        dst=differences,
        data=row,
        op0=nl.subtract,
        operand0=chunk.sums_down[:, head : head + 1],
        op1=nl.add,
        operand1=held.hidden[0:steps, 0:steps],
    )
    nisa.activation(dst=differences, op=nl.exp, data=differences)
    weights = streaming.sbuf((steps, steps), dtype)
    nisa.tensor_tensor(dst=weights, data1=differences, data2=chunk.scores, op=nl.multiply, engine=nisa.engine.gpsimd)
    return weights


def _advance(states: Any, x: Any, chunk: _Chunk, part: slice) -> None:
    """The states of some heads after the chunk, in place."""
    change = streaming.psum((states.shape[0], *x.shape[1:]))
    streaming.contract([chunk.b], [_per_head(x, chunk.rest[:, part], x.dtype)], change)
    kept = _per_head(states[:, part, :], chunk.decay[:, part], nl.float32, nisa.engine.gpsimd)
    nisa.tensor_tensor(dst=states[:, part, :], data1=kept, data2=change, op=nl.add)
