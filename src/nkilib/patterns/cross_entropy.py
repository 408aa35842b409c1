"""Cross entropy of logits with the number of the right one in each row, and its gradient::

    loss[i] = -log_softmax(logits)[i, target[i]]
    d[i, v] = g[i] * (softmax(logits)[i, v] - (v == target[i]))

The kernels are `nkilib.experimental.loss.cross_entropy`, for the gradient twice: its sums are cheaper to make again
than the logarithms are to keep. Targets outside of the vocabulary count as the nearest one inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import nki
import nki.language as nl
from nki.graph.patterns import Match, Op, Pattern, Rewriter, TensorType, Value, combiner, unconverted
from nkilib.errors import KernelLimit
from nkilib.experimental.loss.cross_entropy import cross_entropy_forward, cross_entropy_of_rows
from nkilib.patterns.matching import bare, factors, per_row, same_size


@nki.jit
def losses(logits: Any, targets: Any) -> Any:
    """Losses of rows in float32."""
    return cross_entropy_forward(logits, targets, dtype=nl.float32)[0]


@nki.jit
def gradient(logits: Any, targets: Any, of_loss: Any) -> Any:
    """The gradient of logits from that of the losses."""
    _, sums = cross_entropy_forward(logits, targets, dtype=nl.float32)
    return cross_entropy_of_rows(logits, targets, sums, of_loss)


def match_forward(r: Rewriter, op: Op) -> Match | None:
    """The logarithms that the targets pick of a log-softmax."""
    if op.name != "gather" or not _picks_in_rows(op, "gather"):
        return None
    logits = _log_softmax(r, op.operands[0])
    if logits is None:
        return None
    kind = op.results[0].type

    def finish(r: Rewriter, values: Sequence[Value]) -> Sequence[Value]:
        return (r.same("negate", r.reshape(values[0], kind.shape)),)

    return Match((bare(r, logits), _targets(r, op.operands[1], logits)), op.results, {}, finish)


def match_backward(r: Rewriter, op: Op) -> Match | None:
    """``G - softmax * rowsum(G)``, where G has one number in each row, at the target."""
    for picked, rest, sign in _sides(op):
        scatter, scale = _picked(r, picked)
        logits = None if scatter is None else _shares(r, rest, picked, sign)
        if scatter is None or logits is None:
            continue
        narrow = bare(r, logits)
        targets = _targets(r, scatter.operands[1], logits)
        kind = op.results[0].type

        def finish(r: Rewriter, values: Sequence[Value], kind: TensorType = kind) -> Sequence[Value]:
            return (r.convert(r.reshape(values[0], kind.shape), kind.dtype),)

        of_loss = _row_scale(r, scatter, scale, logits.type.shape[0])
        beside = tuple(_gathered(r, logits, scatter.operands[1]))
        return Match((narrow, targets, of_loss), op.results, {}, finish, beside)
    return None


def _sides(op: Op) -> Iterator[tuple[Value, Value, int]]:
    """What may be G, what may be the rest, and the sign of that."""
    if op.name in ("add", "subtract"):
        one, other = op.operands
        yield one, other, 1 if op.name == "add" else -1
        if op.name == "add":
            yield other, one, 1


# ------------------------------------------------------------------------------------------------------------- softmax


def _log_softmax(r: Rewriter, value: Value) -> Value | None:
    """x of ``(x - max(x)) - log(sum(exp(x - max(x))))``, over rows of a matrix."""
    difference = r.maker(unconverted(r, value), "subtract")
    shifted = None if difference is None else unconverted(r, difference.operands[0])
    logits = None if shifted is None else _shifted(r, shifted)
    narrow = None if difference is None or len(value.type.shape) != 2 else per_row(r, difference.operands[1])
    log = None if narrow is None else r.maker(narrow, "log")
    total = None if log is None else same_size(r, log.operands[0])
    if logits is None or shifted is None or total is None or not _is_sum(r, total, shifted):
        return None
    return logits


def _shifted(r: Rewriter, value: Value) -> Value | None:
    """x of ``x - max(x)``."""
    difference = r.maker(value, "subtract")
    narrow = None if difference is None else per_row(r, difference.operands[1])
    largest = None if narrow is None else _reduced(r, narrow, "maximum")
    if difference is None or largest is None:
        return None
    logits = unconverted(r, difference.operands[0])
    return logits if unconverted(r, largest) is logits else None


def _is_sum(r: Rewriter, value: Value, shifted: Value) -> bool:
    """Whether a value is the sum of the exponentials of each row."""
    source = _reduced(r, value, "add")
    power = None if source is None else r.maker(unconverted(r, source), "exponential")
    return power is not None and unconverted(r, power.operands[0]) is shifted


def _reduced(r: Rewriter, value: Value, name: str) -> Value | None:
    """What a value is reduced from over the last dimension, perhaps with numbers that change nothing."""
    value = same_size(r, value)
    reduce = r.maker(value)
    while reduce is not None and reduce.name == name and reduce.name == "maximum":
        lowest = [r.scalar_of(each) for each in reduce.operands]
        place = next((place for place, number in enumerate(lowest) if number is not None and number == -np.inf), None)
        reduce = None if place is None else r.maker(same_size(r, reduce.operands[1 - place]))
    if reduce is None or combiner(reduce) != name:
        return None
    source = reduce.operands[0]
    return source if tuple(reduce.attributes["dimensions"]) == (len(source.type.shape) - 1,) else None


# ------------------------------------------------------------------------------------------------------------- targets


def _picks_in_rows(op: Op, kind: str) -> bool:
    """Whether one element of each row is gathered, or scattered to."""
    a, indices = op.attributes, op.operands[1].type.shape
    own, beside = ("operand", "start_indices") if kind == "gather" else ("input", "scatter_indices")
    single = "collapsed_slice_dims" if kind == "gather" else "inserted_window_dims"
    which = "start_index_map" if kind == "gather" else "scatter_dims_to_operand_dims"
    rows = tuple(a.get(f"{own}_batching_dims", ())) == (0,) and tuple(a.get(f"{beside}_batching_dims", ())) == (0,)
    shape = op.operands[0].type.shape
    there = len(shape) == 2 and indices == (shape[0], 1, 1) and a["index_vector_dim"] == 2
    return rows and there and tuple(a[single]) == (1,) and tuple(a[which]) == (1,)


def _targets(r: Rewriter, indices: Value, logits: Value) -> Value:
    """(rows,), inside of the vocabulary."""
    rows, columns = logits.type.shape
    numbers = r.convert(r.reshape(indices, (rows,)), nl.int32)
    least, most = (r.full(number, numbers.type) for number in (0, columns - 1))
    return r.same("minimum", r.same("maximum", numbers, least), most)


def _picked(r: Rewriter, value: Value) -> tuple[Op | None, Value | None]:
    """The scatter that makes G, and what its rows are multiplied with."""
    found = factors(r, value)
    for one, other in ((0, 1), (1, 0)) if len(found.values) == 2 else ((0, None),):
        scatter = r.maker(found.values[one], "scatter") if found.values else None
        if scatter is None or found.number != 1.0 or not _picks_in_rows(scatter, "scatter"):
            continue
        scale = None if other is None else per_row(r, found.values[other])
        zeros = r.scalar_of(scatter.operands[0]) == 0 and len(scatter.operands) == 3
        if zeros and _puts(scatter) and (scale is not None) == (other is not None):
            return scatter, scale
    return None, None


def _puts(scatter: Op) -> bool:
    """Whether a scatter to zeros leaves there what it is given: each row has one element, so adding is the same."""
    region = scatter.regions[0]
    if not region.ops:
        return region.results == region.arguments[1:]
    inner = region.ops[0]
    return len(region.ops) == 1 and isinstance(inner, Op) and inner.name == "add"


def _row_scale(r: Rewriter, scatter: Op, scale: Value | None, rows: int) -> Value:
    """The gradient of the losses: the negative of what G has at the targets."""
    updates = r.convert(r.reshape(scatter.operands[2], (rows,)), nl.float32)
    number = r.scalar_of(scatter.operands[2])
    if scale is None:
        return r.same("negate", updates)
    wide = r.convert(r.reshape(scale, (rows,)), nl.float32)
    return wide if number == -1 else r.same("negate", r.same("multiply", updates, wide))


def _shares(r: Rewriter, value: Value, picked: Value, sign: int) -> Value | None:
    """The logits whose softmax is multiplied with the sums of G in each row, as PyTorch and JAX write it.

    Args:
        sign: of the value, beside G.
    """
    found = factors(r, value)
    for one, other in ((0, 1), (1, 0)) if len(found.values) == 2 else ():
        power, narrow = r.maker(found.values[one], "exponential"), per_row(r, found.values[other])
        inner = None if power is None else unconverted(r, power.operands[0])
        if inner is None or narrow is None or abs(found.number) != 1.0:
            continue
        logits, sums = _log_softmax(r, inner), narrow
        if logits is None and (divided := r.maker(_without_zero(r, narrow), "divide")) is not None:
            sums = divided.operands[0]
            logits = _shifted(r, inner) if _is_sum(r, divided.operands[1], inner) else None
        if logits is not None and _sum_sign(r, sums, picked) * sign * found.number == -1:
            return logits
    return None


def _without_zero(r: Rewriter, value: Value) -> Value:
    op = r.maker(value, "add")
    if op is None:
        return value
    return next(
        (each for each, other in zip(op.operands, op.operands[::-1], strict=True) if r.scalar_of(other) == 0), value
    )


def _sum_sign(r: Rewriter, value: Value, picked: Value) -> int:
    """1 if a value has the sums of G in each row, -1 for their negatives, else 0."""
    sign = 1
    source = _reduced(r, value, "add")
    if source is None and (op := r.maker(same_size(r, value), "negate")) is not None:
        sign, source = -1, _reduced(r, op.operands[0], "add")
    while source is not None and (op := r.maker(unconverted(r, source), "negate")) is not None:
        sign, source = -sign, op.operands[0]
    return sign if source is not None and unconverted(r, source) is unconverted(r, picked) else 0


def _gathered(r: Rewriter, logits: Value, indices: Value) -> Iterator[Value]:
    """What the targets pick of a log-softmax, if the model has that too."""
    for op in list(r.written):
        if op.name == "gather" and op.operands[1] is indices and _log_softmax(r, op.operands[0]) is logits:
            yield op.results[0]


CROSS_ENTROPY_BACKWARD = Pattern(
    "cross_entropy_backward", match_backward, gradient, choose="faster", refuses=(KernelLimit,)
)
CROSS_ENTROPY_FORWARD = Pattern("cross_entropy_forward", match_forward, losses, choose="faster", refuses=(KernelLimit,))
