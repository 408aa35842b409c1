"""Gated delta rule for prefill (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024), in chunks of 128 tokens.

Token by token, with a state S of ``(D, D)``::

    S = exp(gate) * S;   S = S + k^T (beta * (v - k S));   out = scale * q S

In a chunk, with cs the running sum of the gates and ``A[t, s] = -beta[t] (k[t] . k[s]) exp(cs[t] - cs[s])`` below the
diagonal, ``T = (I - A)^-1`` makes the corrections of all tokens at once::

    new = T (beta v) - T (beta exp(cs) k) S
    out = scale * (exp(cs) q S + sum over s <= t of (q[t] . k[s]) exp(cs[t] - cs[s]) new[s])
    S   = exp(cs[last]) S + sum over s of exp(cs[last] - cs[s]) k[s]^T new[s]

T is the same for every state, so that chunks and sequences only meet in the three products with S. The Tensor engine
bounds it, which inverts in float32 (`triangular`); Scalar makes exponentials and empties PSUM, Vector and GpSimd weigh.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.gdn import triangular

_CHUNK = 128
_TURNS = 8
"""Sequences whose chunks take turns, so that engines do not wait for a chunk's products one by one."""
_HIDDEN = -1.0e30
"""Added to a difference of sums that does not count: its exponential is 0."""


@nki.jit
def gdn_cte(q: Any, k: Any, v: Any, beta: Any, gate: Any, scale: float = 1.0) -> tuple[Any, Any]:
    """The outputs and the last states.

    Args:
        q, k, v: ``(B, S, D)``, float32, bfloat16 or float16; D at most 128, any S. B counts sequences and heads.
        beta: ``(B, S)``: how much of the difference is corrected, 0 to 1.
        gate: ``(B, S)``: the logarithm of what the state keeps, at most 0; None keeps everything.
        scale: of the outputs, mostly ``D ** -0.5``.

    Returns:
        out ``(B, S, D)`` in the dtype of q, and the states ``(B, D, D)`` in float32. Cores share the sequences.
    """
    sizes = _checked(q, k, v, beta, gate)
    out = streaming.result(q.shape, q.dtype)
    last = streaming.result((sizes["B"], sizes["D"], sizes["D"]), nl.float32)
    held = _held(min(_CHUNK, sizes["S"]))
    mine = streaming.share(range(sizes["B"]))
    for first in range(0, len(mine), _TURNS):
        places = mine[first : first + _TURNS]
        states = [streaming.filled((sizes["D"], sizes["D"]), nl.float32, 0.0) for _ in places]
        for steps in streaming.spans(sizes["S"], _CHUNK):
            inputs = [_inputs(i, steps, q, k, v, beta, gate) for i in places]
            chunks = streaming.interleaved([_chunk(each, scale, held) for each in inputs])
            made = streaming.interleaved(list(map(_advance, states, chunks)))
            for sequence, tile in zip(places, made, strict=True):
                streaming.store(out[sequence, steps, :], tile)
        for sequence, state in zip(places, states, strict=True):
            streaming.store(last[sequence], state)
    return out, last


def _checked(q: Any, k: Any, v: Any, beta: Any, gate: Any) -> dict[str, int]:
    sizes = limits.shape("q", q, ("B", "S", "D"))
    limits.shape("k", k, ("B", "S", "D"), sizes)
    limits.shape("v", v, ("B", "S", "D"), sizes)
    limits.shape("beta", beta, ("B", "S"), sizes)
    if gate is not None:
        limits.shape("gate", gate, ("B", "S"), sizes)
    limits.between("D", sizes["D"], 1, nl.tile_size.pmax, "features lie on partitions")
    limits.dtype("q", q, (nl.float32, nl.bfloat16, nl.float16))
    limits.same_dtype(q=q, k=k, v=v)
    return sizes


def _inputs(sequence: int, steps: slice, *tensors: Any) -> list[Any]:
    """The steps of a sequence in each tensor; None stays None."""
    return [None if each is None else each[sequence, steps] for each in tensors]


@dataclass
class _Held:
    """What all chunks share, in SBUF: running sums as a product, what does not count, and masks of the inversion."""

    until: Any
    after: Any
    before: Any
    masks: triangular.Masks


def _held(rows: int) -> _Held:
    """For chunks of some rows: matrices ``(rows, rows)``.

    `until` is 1 where the row is not after the column. `after` hides rows after columns, `before` columns from the
    row on.
    """
    lower, strictly = np.tri(rows, dtype=bool), np.tri(rows, k=-1, dtype=bool)
    hidden = [np.where(shown, 0.0, _HIDDEN) for shown in (lower.T, strictly)]
    constants = [each.astype(np.float32) for each in (lower.T, *hidden)]
    until, after, before = (streaming.load(nl.shared_constant(each)) for each in constants)
    return _Held(until, after, before, triangular.masks(rows))


@dataclass
class _Chunk:
    """What a chunk of n tokens brings to a state.

    Attributes:
        weights: ``(s, t)``: scores times decays times scale, for s <= t.
        query: q transposed, ``(D, n)``.
        after: ``scale * exp(cs)``, ``(n, 1)``.
        values: ``T (beta v)``, ``(n, D)``.
        keys: ``T (beta exp(cs) k)``, transposed, ``(D, n)``.
        written: ``exp(cs[last] - cs) k``, ``(n, D)``.
        kept: ``exp(cs[last])`` on all partitions, ``(D, 1)``.
    """

    weights: Any
    query: Any
    after: Any
    values: Any
    keys: Any
    written: Any
    kept: Any


def _chunk(inputs: list[Any], scale: float, held: _Held) -> Generator[None, None, _Chunk]:
    q, k, v, beta, gate = inputs
    rows, width = k.shape
    (query,), (key,) = streaming.load_transposed(q), streaming.load_transposed(k)
    keys, values = streaming.load(k), streaming.load(v)
    strength = streaming.load(beta, nl.float32)
    sums, across = _sums(gate, rows, held)
    grown = _exp(sums, 0.0)
    weak = _weighed(keys, strength, k.dtype)
    yield
    turned = yield from _inverse(key, streaming.transpose(weak), sums, across, held)
    right = _weighed(values, strength, nl.float32)
    right_keys = _weighed(_weighed(keys, strength, nl.float32), grown, nl.float32)
    weights = _decays(across, sums, held.after[0:rows, 0:rows])
    score = streaming.contract([key], [query], streaming.psum((rows, rows)))
    shown = streaming.sbuf((rows, rows), k.dtype)
    nisa.scalar_tensor_tensor(
        dst=shown, data=score, op0=nl.multiply, operand0=float(scale), op1=nl.multiply, operand1=weights
    )
    after = streaming.sbuf((rows, 1), nl.float32)
    nisa.tensor_scalar(dst=after, data=grown, op0=nl.multiply, operand0=float(scale))
    end = across[:, rows - 1 : rows]
    return _Chunk(
        weights=shown,
        query=query,
        after=after,
        values=streaming.copied(streaming.contract([turned], [right], streaming.psum((rows, width)))),
        keys=streaming.copied(streaming.contract([right_keys], [turned], streaming.psum((width, rows))), k.dtype),
        written=_weighed(keys, _exp(sums, end, -1.0), k.dtype),
        kept=_last_on_all(gate, rows, width, held),
    )


def _sums(gate: Any, rows: int, held: _Held) -> tuple[Any, Any]:
    """cs as a column ``(n, 1)``, and as a row on all partitions, ``(n, n)``."""
    column = streaming.filled((rows, 1), nl.float32, 0.0) if gate is None else streaming.load(gate, nl.float32)
    until = held.until[0:rows, 0:rows]
    sums = streaming.copied(streaming.contract([until], [column], streaming.psum((rows, 1))))
    wide = streaming.contract([column.broadcast(1, rows)], [until], streaming.psum((rows, rows)))
    return sums, streaming.copied(wide)


def _last_on_all(gate: Any, rows: int, width: int, held: _Held) -> Any:
    """``exp`` of the last sum on `width` partitions."""
    if gate is None:
        return streaming.filled((width, 1), nl.float32, 1.0)
    column = streaming.load(gate, nl.float32)
    ones = streaming.filled((rows, width), nl.float32, 1.0)
    return _exp(streaming.copied(streaming.contract([ones], [column], streaming.psum((width, 1)))), 0.0)


def _inverse(key: Any, weak_key: Any, sums: Any, across: Any, held: _Held) -> Generator[None, None, Any]:
    """T transposed."""
    rows = key.shape[1]
    lower = streaming.sbuf((rows, rows), nl.float32)
    decays = _decays(across, sums, held.before[0:rows, 0:rows], -1.0)
    product = streaming.contract([weak_key], [key], streaming.psum((rows, rows)))
    nisa.scalar_tensor_tensor(dst=lower, data=product, op0=nl.multiply, operand0=-1.0, op1=nl.multiply, operand1=decays)
    upper = streaming.transpose(lower)
    yield
    return (yield from triangular.inverse_transposed(lower, upper, held.masks))


def _decays(across: Any, sums: Any, hidden: Any, sign: float = 1.0) -> Any:
    """``exp(sign * (row - column))`` where nothing is hidden, else 0."""
    made = streaming.sbuf(across.shape, nl.float32)
    nisa.scalar_tensor_tensor(
        dst=made, data=across, op0=nl.subtract, operand0=sums, op1=nl.add if sign > 0 else nl.subtract, operand1=hidden
    )
    nisa.activation(dst=made, op=nl.exp, data=made, scale=sign)
    return made


def _exp(tile: Any, bias: Any, scale: float = 1.0) -> Any:
    made = streaming.sbuf(tile.shape, nl.float32)
    nisa.activation(dst=made, op=nl.exp, data=tile, bias=bias, scale=scale)
    return made


def _weighed(tile: Any, column: Any, dtype: Any) -> Any:
    """Rows times a column."""
    made = streaming.sbuf(tile.shape, dtype)
    nisa.tensor_scalar(dst=made, data=tile, op0=nl.multiply, operand0=column)
    return made


def _advance(state: Any, chunk: _Chunk) -> Generator[None, None, Any]:
    """The outputs ``(n, D)`` of a chunk; the state goes on to its end, in place."""
    rows, width = chunk.values.shape
    before = streaming.copied(state, chunk.keys.dtype)
    known = streaming.contract([chunk.keys], [before], streaming.psum((rows, width)))
    new = streaming.sbuf((rows, width), chunk.keys.dtype)
    nisa.tensor_tensor(dst=new, data1=chunk.values, data2=known, op=nl.subtract)
    yield
    old = streaming.contract([chunk.query], [before], streaming.psum((rows, width)))
    inside = streaming.contract([chunk.weights], [new], streaming.psum((rows, width)))
    total = streaming.sbuf((rows, width), nl.float32)
    nisa.activation(dst=total, op=nl.copy, data=old, scale=chunk.after)
    yield
    made = streaming.sbuf((rows, width), chunk.keys.dtype)
    nisa.tensor_tensor(dst=made, data1=total, data2=inside, op=nl.add)
    change = streaming.contract([chunk.written], [new], streaming.psum((width, width)))
    nisa.scalar_tensor_tensor(dst=state, data=state, op0=nl.multiply, operand0=chunk.kept, op1=nl.add, operand1=change)
    return made
