"""Cells of LSTM and GRU layers on the device: PyTorch calls operators for them that its CPU does not have.

They are computed by PyTorch's other operators, each of which is a program of its own. The workspace, which the forward
operator hands to the backward one, holds the gates after their activation, as in PyTorch's code for graphics cards.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LSTM_GATES = 4
_GRU_GATES = 3
_GRU_KEPT = 5
"""Three gates, the previous state, and what the reset gate is multiplied by."""


def register(aten: torch.library.Library, key: str) -> None:
    """Give the device the operators of the cells."""
    aten.impl("_thnn_fused_lstm_cell", _lstm, key)
    aten.impl("_thnn_fused_lstm_cell_backward_impl", _lstm_backward, key)
    aten.impl("_thnn_fused_gru_cell", _gru, key)
    aten.impl("_thnn_fused_gru_cell_backward", _gru_backward, key)


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def _lstm(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden state and cell [batch, features], and the gates [batch, 4 * features]."""
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    enter, forget, fresh, leave = gates.chunk(_LSTM_GATES, 1)
    enter, forget, fresh, leave = enter.sigmoid(), forget.sigmoid(), fresh.tanh(), leave.sigmoid()
    new_cell = forget * cell + enter * fresh
    return leave * new_cell.tanh(), new_cell, torch.cat([enter, forget, fresh, leave], 1)


def _lstm_backward(
    hidden_gradient: Tensor | None,
    cell_gradient: Tensor | None,
    cell: Tensor,
    new_cell: Tensor,
    gates: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the sums in the gates, of the cell, and of each bias."""
    if hidden_gradient is None and cell_gradient is None:
        return None, None, None
    enter, forget, fresh, leave = gates.chunk(_LSTM_GATES, 1)
    seen = new_cell.tanh()
    hidden = torch.zeros_like(cell) if hidden_gradient is None else hidden_gradient
    inner = hidden * leave * (1 - seen * seen)
    if cell_gradient is not None:
        inner = inner + cell_gradient
    parts = [
        inner * fresh * enter * (1 - enter),
        inner * cell * forget * (1 - forget),
        inner * enter * (1 - fresh * fresh),
        hidden * seen * leave * (1 - leave),
    ]
    made = torch.cat(parts, 1)
    return made, inner * forget, made.sum(0) if has_bias else None


def _gru(
    input_gates: Tensor,
    hidden_gates: Tensor,
    state: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The state [batch, features], and what the derivative needs [batch, 5 * features]."""
    given = _biased(input_gates, input_bias).chunk(_GRU_GATES, 1)
    own = _biased(hidden_gates, hidden_bias).chunk(_GRU_GATES, 1)
    reset, update = (given[0] + own[0]).sigmoid(), (given[1] + own[1]).sigmoid()
    fresh = (given[2] + reset * own[2]).tanh()
    return fresh + update * (state - fresh), torch.cat([reset, update, fresh, state, own[2]], 1)


def _gru_backward(
    gradient: Tensor, kept: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of the sums in the gates, of the input's and the state's, of the state, and of both biases."""
    reset, update, fresh, state, own = kept.chunk(_GRU_KEPT, 1)
    to_update = gradient * (state - fresh) * (1 - update) * update
    to_fresh = gradient * (1 - update) * (1 - fresh * fresh)
    to_reset = to_fresh * own * (1 - reset) * reset
    of_input = torch.cat([to_reset, to_update, to_fresh], 1)
    of_state = torch.cat([to_reset, to_update, to_fresh * reset], 1)
    biases = (of_input.sum(0), of_state.sum(0)) if has_bias else (None, None)
    return of_input, of_state, gradient * update, *biases
