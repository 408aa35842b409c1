"""Linear recurrence along the last dimension: ``result[t] = decay[t] * result[t - 1] + data[t]``.

Each sequence lies on a partition, and the Vector engine has an instruction for the recurrence, with a float32 state
(NKI reference of `nisa.tensor_tensor_scan`). A sequence that is longer than a tile goes on with the last state of the
tile before. Vector scans and Scalar rounds what is not float32, while DMA, which bounds it, moves the neighbours.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming

_COLUMNS = 4096
"""Steps of a tile: long enough for transfers, short enough for several tiles in SBUF."""


@nki.jit
def linear_scan(decay: Any, data: Any, initial: Any = None) -> tuple[Any, Any]:
    """The recurrence for every row of the dimensions before the last one.

    Args:
        decay, data: ``(..., P, L)``, float32, bfloat16 or float16; of one shape, at least two dimensions.
        initial: ``(..., P, 1)``: the state before the first step; 0 by default.

    Returns:
        The results, of the shape of `data` and its dtype, and the last states, ``(..., P, 1)`` in float32.
    """
    limits.need(len(data.shape) >= 2, "data", list(data.shape), "data has at least two dimensions", "reshape data")
    limits.shape("decay", decay, data.shape)
    for name, tensor in (("decay", decay), ("data", data), ("initial", initial)):
        if tensor is not None:
            limits.dtype(name, tensor, (nl.float32, nl.bfloat16, nl.float16))
    if initial is not None:
        limits.shape("initial", initial, (*data.shape[:-1], 1))
    result = streaming.result(data.shape, data.dtype)
    last = streaming.result((*data.shape[:-1], 1), nl.float32)
    flat = [_rows(tensor) for tensor in (decay, data, result, last)]
    states = None if initial is None else _rows(initial)
    for rows in streaming.spans(flat[0].shape[0], nl.tile_size.pmax, shared=True):
        before = None if states is None else streaming.load(states[rows, :], nl.float32)
        _scan_rows([tensor[rows, :] for tensor in flat], before)
    return result, last


def _rows(tensor: Any) -> Any:
    """A tensor as ``(rows, steps)``."""
    count = 1
    for size in tensor.shape[:-1]:
        count *= size
    return tensor.reshape((count, tensor.shape[-1]))


def _scan_rows(tensors: list[Any], state: Any) -> None:
    """All steps of at most 128 rows, from a state ``(rows, 1)`` in SBUF on; None stands for 0."""
    decay, data, result, last = tensors
    for steps in streaming.spans(data.shape[1], _COLUMNS):
        scanned = scan(streaming.load(decay[:, steps]), streaming.load(data[:, steps]), state)
        state = scanned[:, streaming.size(steps) - 1 : streaming.size(steps)]
        streaming.store(result[:, steps], streaming.copied(scanned, result.dtype))
    streaming.store(last, state)


def scan(decay: Any, data: Any, state: Any) -> Any:
    """The recurrence over tiles ``(rows, steps)``, a new tile in float32.

    Args:
        decay, data: tiles in SBUF; one of them may be in PSUM.
        state: ``(rows, 1)``, or None for 0.
    """
    made = streaming.sbuf(data.shape, nl.float32)
    nisa.tensor_tensor_scan(
        dst=made, data0=decay, data1=data, initial=0.0 if state is None else state, op0=nl.multiply, op1=nl.add
    )
    return made
