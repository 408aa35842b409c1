"""Selective scan of Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023).

For each channel and each state n, step by step::

    state[n] = exp(dt * A[n]) * state[n] + dt * x * B[n]
    y        = sum over n of C[n] * state[n], plus D * x

Channels lie on partitions and steps behind each other, so that the recurrence is one instruction of the Vector engine.
Scalar makes the exponentials, GpSimd multiplies by C and, for every other state, by B, and the Tensor engine sums the
states up in PSUM (a product with the identity), so that Vector, which bounds it, has little more than the recurrences.
B and C are brought to all partitions once for each piece of the sequence, and serve all channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.scan.linear_scan import scan

_FLOATS = (nl.float32, nl.bfloat16, nl.float16)
_MOST_STATES = 128
_STEPS = 1024
"""Steps of a piece: two banks of PSUM, and B and C of 16 states in a third of SBUF."""


@nki.jit
def selective_scan(
    x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, initial_state: Any = None
) -> tuple[Any, Any]:
    """The outputs and the last states.

    Args:
        x, dt: ``(batch, channels, L)``, float32, bfloat16 or float16; dt is positive.
        A: ``(channels, states)``, float32, negative where the recurrence is to be stable.
        B, C: ``(batch, states, L)``, of the dtype of x.
        D: ``(channels,)``: the weight of x itself.
        initial_state: ``(batch, channels, states)``; 0 by default.

    Returns:
        y ``(batch, channels, L)`` in the dtype of x, and the states after the last step in float32,
        ``(batch, channels, states)``.
    """
    sizes = _checked(x, dt, A, B, C, D, initial_state)
    y = streaming.result(x.shape, x.dtype)
    last = streaming.result((sizes["batch"], sizes["channels"], sizes["states"]), nl.float32)
    identity = nl.shared_identity_matrix(nl.tile_size.pmax, dtype=x.dtype)
    groups = streaming.spans(sizes["channels"], nl.tile_size.pmax, shared=True)
    for batch in range(sizes["batch"]):
        first = None if initial_state is None else initial_state[batch]
        channels = [_channels(A, D, first, group) for group in groups]
        for steps in streaming.spans(sizes["L"], _STEPS):
            wide = [_wide(row[batch, :, steps]) for row in (B, C)]
            for group, held in zip(groups, channels, strict=True):
                inputs = streaming.load(x[batch, group, steps]), streaming.load(dt[batch, group, steps])
                streaming.store(y[batch, group, steps], _piece(inputs, wide, held, identity))
        for group, held in zip(groups, channels, strict=True):
            streaming.store(last[batch, group, :], held.states)
    return y, last


def _checked(x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, initial_state: Any) -> dict[str, int]:
    sizes = limits.shape("x", x, ("batch", "channels", "L"))
    limits.shape("dt", dt, ("batch", "channels", "L"), sizes)
    limits.shape("A", A, ("channels", "states"), sizes)
    limits.shape("B", B, ("batch", "states", "L"), sizes)
    limits.shape("C", C, ("batch", "states", "L"), sizes)
    if D is not None:
        limits.shape("D", D, ("channels",), sizes)
    if initial_state is not None:
        limits.shape("initial_state", initial_state, ("batch", "channels", "states"), sizes)
    limits.dtype("x", x, _FLOATS)
    limits.dtype("A", A, (nl.float32,))
    limits.same_dtype(x=x, dt=dt, B=B, C=C)
    limits.between("states", sizes["states"], 1, _MOST_STATES, "B and C stay on all partitions")
    return sizes


@dataclass
class _Channels:
    """What at most 128 channels keep: A ``(channels, states)``, D as a column or None, and the states like A."""

    decay: Any
    skip: Any
    states: Any


def _channels(A: Any, D: Any, initial: Any, group: slice) -> _Channels:
    decay = streaming.load(A[group, :])
    skip = None if D is None else streaming.load(D[group], nl.float32)
    if initial is None:
        return _Channels(decay, skip, streaming.filled(decay.shape, nl.float32, 0.0))
    return _Channels(decay, skip, streaming.load(initial[group, :], nl.float32))


def _wide(rows: Any) -> Any:
    """Rows ``(states, steps)`` on every partition: ``(128, states, steps)``."""
    states, steps = rows.shape
    tile = streaming.sbuf((nl.tile_size.pmax, states, steps), rows.dtype)
    for n in range(states):
        streaming.copy(tile[:, n, :], rows[n : n + 1, :].broadcast(0, nl.tile_size.pmax))
    return tile


def _piece(inputs: tuple[Any, Any], wide: list[Any], held: _Channels, identity: Any) -> Any:
    """y of some steps, ``(channels, steps)``; the states of `held` go on to their last step."""
    x, dt = inputs
    count = x.shape[0]
    change = _product(dt, x, nl.float32, nisa.engine.vector)
    total = streaming.psum(x.shape)
    for n in range(held.decay.shape[1]):
        state = held.states[:, n : n + 1]
        engine = nisa.engine.gpsimd if n % 2 else nisa.engine.vector
        added = _product(change, wide[0][0:count, n, :], nl.float32, engine)
        scanned = _state(dt, added, held.decay[:, n : n + 1], state)
        nisa.activation(dst=state, op=nl.copy, data=scanned[:, x.shape[1] - 1 : x.shape[1]])
        weighted = _product(scanned, wide[1][0:count, n, :], x.dtype, nisa.engine.gpsimd)
        for bank in streaming.spans(x.shape[1], nl.tile_size.psum_bank_fmax):
            nisa.nc_matmul(
                dst=total[:, bank], stationary=identity[0:count, 0:count], moving=weighted[:, bank], accumulate=n > 0
            )
    return _with_skip(total, x, held.skip)


def _product(a: Any, b: Any, dtype: Any, engine: Any) -> Any:
    made = streaming.sbuf(a.shape, dtype)
    nisa.tensor_tensor(dst=made, data1=a, data2=b, op=nl.multiply, engine=engine)
    return made


def _state(dt: Any, added: Any, decay: Any, state: Any) -> Any:
    """One state of all steps, in float32."""
    factor = streaming.sbuf(dt.shape, nl.float32)
    nisa.activation(dst=factor, op=nl.exp, data=dt, scale=decay)
    return scan(factor, added, state)


def _with_skip(total: Any, x: Any, skip: Any) -> Any:
    y = streaming.sbuf(x.shape, x.dtype)
    if skip is None:
        nisa.activation(dst=y, op=nl.copy, data=total)
    else:
        nisa.scalar_tensor_tensor(dst=y, data=x, op0=nl.multiply, operand0=skip, op1=nl.add, operand1=total)
    return y
