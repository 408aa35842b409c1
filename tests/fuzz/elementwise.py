"""Steps of a random kernel: copies and element-wise arithmetic, reductions, scans and selections."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from tests.fuzz.scope import Scope

ENGINE = nisa.engine
COMMAND = nisa.reduce_cmd
ANY = (ENGINE.vector, ENGINE.scalar, ENGINE.gpsimd)
ARITHMETIC = (nl.add, nl.subtract, nl.maximum, nl.minimum)
CURVES = (nl.tanh, nl.sigmoid, nl.relu, nl.square, nl.gelu)


def memset(s: Scope) -> None:
    (dst,) = s.target_and()
    s.note(nisa.memset(dst, s.random.choice([0.0, 1.0, -0.5]), engine=s.compute(dst)))


def tensor_copy(s: Scope) -> None:
    dst, src = s.target_and(s.source(), dynamic=True)
    s.note(nisa.tensor_copy(dst, src, engine=s.compute(dst, src, engines=ANY)))


def in_pieces(s: Scope) -> None:
    """A new tile that several engines fill."""
    dst, src = s.tile(), s.some()
    quarter = s.free // 4
    for k in range(4):
        part = slice(k * quarter, (k + 1) * quarter)
        if s.chance(0.3):
            s.note(nisa.memset(dst[:, part], float(k), engine=s.compute(dst)))
        elif s.chance(0.3):
            s.note(nisa.dma_copy(dst=dst[:, part], src=s.x[s.random.randrange(4)][:, part]))
        else:
            s.note(nisa.tensor_copy(dst[:, part], src[:, part], engine=s.compute(dst, engines=ANY)))
    s.tiles.append(dst)


def tensor_tensor(s: Scope) -> None:
    dst, one, two = s.target_and(s.source(), s.some(), dynamic=True)
    op = s.random.choice([*ARITHMETIC, nl.multiply])
    s.note(nisa.tensor_tensor(dst, one, two, op, engine=s.compute(dst, one, two)))


def broadcast(s: Scope) -> None:
    """A tile and a column that is repeated along the free dimension."""
    dst, column = s.tile(), s.random.choice(s.columns)
    s.note(nisa.tensor_tensor(dst, s.source(), column.broadcast(1, s.free), s.random.choice(ARITHMETIC)))
    s.tiles.append(dst)


def tensor_scalar(s: Scope) -> None:
    dst, data = s.target_and(s.source())
    op = s.random.choice([None, nl.add, *ARITHMETIC])
    whole = data.shape[0] == s.partitions
    first, second = (s.operand() for _ in "ab") if whole else (0.5, 1.0)
    engine = s.random.choice([ENGINE.vector, ENGINE.scalar]) if op in (None, nl.add) else ENGINE.vector
    more = {} if op is None else {"op1": op, "operand1": second}
    s.note(nisa.tensor_scalar(dst, data, nl.multiply, first, engine=engine, **more))


def bound(s: Scope) -> None:
    """Keeps numbers small."""
    tile = s.some()
    s.note(nisa.tensor_scalar(tile, tile, nl.maximum, -4.0, op1=nl.minimum, operand1=4.0))


def scalar_tensor_tensor(s: Scope) -> None:
    dst, data, other = s.tile(), s.source(), s.some()
    op = s.random.choice(ARITHMETIC)
    s.note(nisa.scalar_tensor_tensor(dst, data, nl.multiply, s.operand(), op, other))
    s.tiles.append(dst)


def activation(s: Scope) -> None:
    dst, data = s.tile(), s.source()
    bias = s.random.choice(s.columns) if s.chance(0.5) else None
    s.note(nisa.activation(dst, s.random.choice(CURVES), data, bias=bias, scale=s.random.choice([0.5, 1.0])))
    s.tiles.append(dst)


def activation_reduce(s: Scope) -> None:
    dst, column = s.tile(), s.column()
    s.note(nisa.activation_reduce(dst, s.random.choice(CURVES), s.source(), nl.add, column))
    s.tiles.append(dst)
    s.columns.append(column)


def accumulators(s: Scope) -> None:
    """A sum in the accumulator registers of Scalar, or a maximum in those of Vector, with other steps in between."""
    column = s.column()
    if s.chance(0.5):
        for command in (COMMAND.reset_reduce, COMMAND.reduce):
            result = column if command is COMMAND.reduce else None
            dst = s.tile()
            s.note(nisa.activation(dst, nl.tanh, s.source(), reduce_op=nl.add, reduce_res=result, reduce_cmd=command))
            s.tiles.append(dst)
            tensor_tensor(s)
    else:
        for command in (COMMAND.reset_reduce, COMMAND.reduce):
            result = column if command is COMMAND.reduce else None
            dst = s.tile()
            s.note(
                nisa.tensor_scalar_reduce(
                    dst, s.source(), nl.multiply, 0.5, nl.maximum, reduce_res=result, reduce_cmd=command
                )
            )
            s.tiles.append(dst)
            tensor_copy(s)
    s.columns.append(column)


def tensor_reduce(s: Scope) -> None:
    column = s.column()
    s.note(nisa.tensor_reduce(column, s.random.choice([nl.add, nl.maximum]), s.source(), axis=1))
    s.columns.append(column)


def rewritten_column(s: Scope) -> None:
    """A column that exists is computed anew."""
    column = s.random.choice(s.columns)
    s.note(nisa.tensor_reduce(column, nl.maximum, s.some()[:, 0 : s.free // 2], axis=1))


def statistics(s: Scope) -> None:
    six, two = (nl.ndarray((s.partitions, n), nl.float32, buffer=nl.sbuf) for n in (6, 2))
    s.note(nisa.bn_stats(six, s.source()))
    s.note(nisa.bn_aggr(two, six))
    s.columns.append(two[:, 0:1])


def largest(s: Scope) -> None:
    eight = nl.ndarray((s.partitions, 8), nl.float32, buffer=nl.sbuf)
    s.note(nisa.max8(eight, s.source()))
    s.columns.append(eight[:, 7:8])


def scan(s: Scope) -> None:
    dst = s.tile()
    s.note(nisa.tensor_tensor_scan(dst, s.some(), s.some(), s.operand(), nl.minimum, nl.maximum))
    s.tiles.append(dst)


def cumulative(s: Scope) -> None:
    dst = s.tile()
    s.note(nisa.tensor_scalar_cumulative(dst, s.some(), nl.multiply, nl.maximum, 0.5))
    s.tiles.append(dst)


def iota(s: Scope) -> None:
    numbers, dst = s.tile(nl.int32), s.tile()
    step = s.random.choice([1, 2, 3])
    s.note(nisa.iota(numbers, [[step, s.free]], offset=s.random.randrange(4), channel_multiplier=1))
    s.note(nisa.tensor_scalar(dst, numbers, nl.multiply, 0.03125))
    s.tiles.append(dst)


def affine_select(s: Scope) -> None:
    dst = s.tile(nl.float32)
    s.note(nisa.affine_select(dst, [[-1, s.free]], 1, s.some(), 0.25, cmp_op=nl.greater_equal, offset=3))
    s.tiles.append(dst)


def select_reduce(s: Scope) -> None:
    mask, dst, column = s.tile(nl.uint8), s.tile(nl.float32), s.column()
    s.note(nisa.tensor_scalar(mask, s.source(), nl.greater, 0.0))
    s.note(nisa.select_reduce(dst, mask, s.some(), 0.5, reduce_res=column, reduce_cmd=COMMAND.reset_reduce))
    s.tiles.append(dst)
    s.columns.append(column)


def predicated(s: Scope) -> None:
    mask, dst, src = s.tile(nl.uint8), s.tile(nl.float32), s.some()
    s.note(nisa.tensor_scalar(mask, s.source(), nl.less, 0.25))
    s.note(nisa.memset(dst, 1.0))
    s.note(nisa.tensor_copy_predicated(dst, src, mask) if src.dtype is dst.dtype else nisa.tensor_copy(dst, src))
    s.tiles.append(dst)


def range_select(s: Scope) -> None:
    dst, column = s.tile(nl.float32), s.column()
    low, high = s.random.choice(s.columns), s.random.choice(s.columns)
    s.note(nisa.range_select(dst, s.source(), nl.greater_equal, nl.less, low, high, reduce_res=column))
    s.note(nisa.tensor_scalar(dst, dst, nl.maximum, -8.0))
    s.tiles.append(dst)
    s.columns.append(column)


STEPS = {
    memset: 3, tensor_copy: 6, in_pieces: 2, tensor_tensor: 8, broadcast: 2, tensor_scalar: 6, bound: 3,
    scalar_tensor_tensor: 3, activation: 5, activation_reduce: 2, accumulators: 2, tensor_reduce: 3,
    rewritten_column: 2, statistics: 1, largest: 1, scan: 2, cumulative: 1, iota: 1, affine_select: 1, select_reduce: 1,
    predicated: 2, range_select: 1,
}  # fmt: skip
"""Each step with how often it is taken."""
