"""Gradients of the gated MLP ``y = (f(x @ gate) * (x @ up)) @ down``, from those of y.

    dh = dy @ down.T                       d_down = h.T @ dy, where h = f(g) * u
    dg = dh * u * f'(g), du = dh * f(g)    d_gate = x.T @ dg, d_up = x.T @ du
    d_x = dg @ gate.T + du @ up.T

Shapes: x and dy (B, S, H), gate and up (H, I), down (I, H); gradients as what they belong to. dtypes: float32, bfloat16
or float16, all the same; sums are float32, and h, dg and du are rounded once.

Plan: g, u and dh of up to 512 tokens are summed side by side, Scalar and Vector make h, dg and du of them, and these go
to device memory; from there each of the four remaining products contracts them. Tensor bounds all of it; weights that
have to be transposed are so while DMA loads them. Two cores share the tokens, and then the rows of the weights.

Source: the chain rule; g and u are computed again, as in Chen et al., "Training Deep Nets with Sublinear Memory Cost".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.mlp.mlp_checks import FLOATS
from nkilib.core.mlp.tokens import Norm, Tokens
from nkilib.core.mlp.weight_products import by_rows, column_groups, in_tiles, slabs
from nkilib.core.utils.common_types import ActFnType, NormType
from nkilib.products import own
from nkilib.rows import matrix
from nkilib.streaming import Panel, ceil_div, load_panel, load_transposed, result, sbuf, share, size, spans, store

FUNCTIONS = {
    ActFnType.SiLU: (nl.silu, nl.silu_dx),
    ActFnType.GELU: (nl.gelu, nl.gelu_dx),
    ActFnType.Swish: (nl.gelu_apprx_sigmoid, nl.gelu_apprx_sigmoid_dx),
}
"""Activation functions and their derivatives."""

_TOGETHER = 512
"""Columns of a panel: tokens of the first products, rows of the weights of the last ones."""

_TURNED = 4
"""Tiles of weights that are loaded transposed together."""

_ROOM = 112 * 1024
"""Bytes of a partition for a panel."""


@nki.jit
def mlp_backward(
    hidden_tensor: Any,
    gate_proj_weights_tensor: Any,
    up_proj_weights_tensor: Any,
    down_proj_weights_tensor: Any,
    gradient: Any,
    activation_fn: ActFnType = ActFnType.SiLU,
) -> list[Any]:
    """Gradients of an MLP's tokens and weights.

    Args:
        hidden_tensor, gradient: x and dy, (B, S, H).
        gate_proj_weights_tensor, up_proj_weights_tensor: (H, I).
        down_proj_weights_tensor: (I, H).
        activation_fn: SiLU, GELU or Swish.

    Returns:
        ``[d_hidden, d_gate, d_up, d_down]``, in the shapes and dtypes of the arguments.

    Raises:
        KernelLimit: shapes or dtypes that do not fit, or another activation.
    """
    weights = (gate_proj_weights_tensor, up_proj_weights_tensor, down_proj_weights_tensor)
    _check(hidden_tensor, gradient, *weights, activation_fn)
    x, dy = matrix(hidden_tensor), matrix(gradient)
    (tokens, _), inner = x.shape, weights[0].shape[1]
    middle = {name: result((tokens, inner), x.dtype) for name in ("h", "dg", "du")}
    out = [result(each.shape, each.dtype) for each in (hidden_tensor, *weights)]
    rows = own(tokens, nl.tile_size.pmax)
    for block in _parts(rows, _TOGETHER):
        _inner_gradients(x, dy, weights, activation_fn, block, middle)
    for block in _parts(rows, _width(2 * inner, x.dtype)):
        _token_gradients(middle, weights, block, matrix(out[0]))
    if nl.num_programs(0) > 1:
        for each in middle.values():
            nisa.core_barrier(data=each, cores=(0, 1))
    for target, left, right in ((out[1], x, middle["dg"]), (out[2], x, middle["du"]), (out[3], middle["h"], dy)):
        _weight_gradients(left, right, target)
    return out


def _check(x: Any, dy: Any, gate: Any, up: Any, down: Any, function: ActFnType) -> None:
    sizes = limits.shape("hidden_tensor", x, ("B", "S", "H"))
    limits.shape("gradient", dy, ("B", "S", "H"), sizes)
    names = ("gate_proj_weights_tensor", "up_proj_weights_tensor", "down_proj_weights_tensor")
    for name, each, shape in zip(names, (gate, up, down), (("H", "I"), ("H", "I"), ("I", "H")), strict=True):
        limits.shape(name, each, shape, sizes)
    limits.dtype("hidden_tensor", x, FLOATS)
    limits.same_dtype(hidden_tensor=x, gradient=dy, **dict(zip(names, (gate, up, down), strict=True)))
    limits.one_of("activation_fn", function, tuple(FUNCTIONS))


def _inner_gradients(
    x: Any, dy: Any, weights: tuple[Any, ...], function: ActFnType, rows: slice, middle: Mapping[str, Any]
) -> None:
    """h, dg and du of some tokens, into their rows in HBM."""
    gate, up, down = weights
    none = Norm(NormType.NO_NORM, None, None, 1.0)
    left, right = (Tokens(each, None, None, none, x.dtype).panel(rows) for each in (x, dy))
    for columns in column_groups(slice(0, gate.shape[1]), size(rows)):
        inner = _Inner(function, {name: each[rows, :] for name, each in middle.items()})
        by_rows(slabs(in_tiles(gate), columns), left, columns, inner.of_gate)
        by_rows(slabs(in_tiles(up), columns), left, columns, inner.of_up)
        by_rows(_turned(down, columns), right, columns, inner.of_down)


class _Inner:
    """What g, u and dh become, each of which comes in the same blocks.

    Args:
        function: the activation.
        out: h, dg and du of these tokens in HBM.
    """

    def __init__(self, function: ActFnType, out: Mapping[str, Any]) -> None:
        self._functions, self._out = FUNCTIONS[function], out
        self._kept: dict[tuple[int, int], tuple[Any, Any]] = {}

    def of_gate(self, down: slice, across: slice, sums: Any) -> None:
        """Keep f(g) and f'(g)."""
        value, slope = self._functions
        self._kept[down.start, across.start] = _activated(value, sums), _activated(slope, sums)

    def of_up(self, down: slice, across: slice, sums: Any) -> None:
        """Store h, and keep f(g) and u * f'(g)."""
        value, slope = self._kept[down.start, across.start]
        self._store("h", down, across, value, sums)
        nisa.tensor_tensor(dst=slope, data1=slope, data2=sums, op=nl.multiply)

    def of_down(self, down: slice, across: slice, sums: Any) -> None:
        """Store du and dg."""
        value, slope = self._kept.pop((down.start, across.start))
        self._store("du", down, across, value, sums)
        self._store("dg", down, across, slope, sums)

    def _store(self, name: str, down: slice, across: slice, factor: Any, sums: Any) -> None:
        tile = sbuf(sums.shape, self._out[name].dtype)
        nisa.tensor_tensor(dst=tile, data1=factor, data2=sums, op=nl.multiply)
        store(self._out[name][down, across], tile)


def _activated(function: Any, sums: Any) -> Any:
    tile = sbuf(sums.shape, nl.float32)
    nisa.activation(dst=tile, op=function, data=sums)
    return tile


def _turned(matrix: Any, columns: slice, first: int = 0) -> Iterator[tuple[int, Any]]:
    """Tiles of the matrix transposed: its rows `columns` become columns."""
    pmax = nl.tile_size.pmax
    for part in spans(matrix.shape[1], _TURNED * pmax):
        for number, tile in enumerate(load_transposed(matrix[columns, part])):
            yield first + part.start // pmax + number, tile


def _parts(rows: slice, step: int) -> list[slice]:
    return [slice(rows.start + part.start, rows.start + part.stop) for part in spans(size(rows), step)]


def _width(depth: int, dtype: Any) -> int:
    """Columns of a panel of so many rows, as many as have room."""
    width = _TOGETHER
    while width > 1 and width * ceil_div(depth, nl.tile_size.pmax) * dtype.itemsize > _ROOM:
        width //= 2
    return width


def _token_gradients(middle: Mapping[str, Any], weights: tuple[Any, ...], rows: slice, out: Any) -> None:
    """``dg @ gate.T + du @ up.T`` of some tokens."""
    halves = [load_transposed(middle[name][rows, :]) for name in ("dg", "du")]
    panel: Panel = [tile for half in halves for tile in half]
    for columns in column_groups(slice(0, out.shape[1]), size(rows)):
        tiles = chain(*(_turned(weights[i], columns, i * len(halves[0])) for i in (0, 1)))
        by_rows(tiles, panel, columns, _to(out, rows.start))


def _weight_gradients(left: Any, right: Any, out: Any) -> None:
    """``left.T @ right``, this core's rows of it: all tokens are contracted."""
    tokens, rows = left.shape
    for block in share(spans(rows, _width(tokens, left.dtype))):
        panel = load_panel(left[:, block])
        for columns in column_groups(slice(0, out.shape[1]), size(block)):
            by_rows(slabs(in_tiles(right), columns), panel, columns, _to(out, block.start))


def _to(out: Any, first: int) -> Callable[[slice, slice, Any], None]:
    """Sums as they are to rows of HBM from the first one on."""

    def finish(down: slice, across: slice, sums: Any) -> None:
        tile = sbuf(sums.shape, out.dtype)
        nisa.tensor_copy(dst=tile, src=sums)
        store(out[first + down.start : first + down.stop, across], tile)

    return finish
