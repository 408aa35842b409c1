"""Attention of few new tokens over the keys of a cache, of which a mask says how many count.

The kernel is `nkilib.core.attention.attention_tkg`. What recognises attention is that of the graph compiler. Each head
of keys, with the queries that it serves, counts as a sequence of the kernel. The cache holds the new tokens already, so
that its last row is what the kernel gets as theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import nki
import nki.language as nl
from nki.graph.patterns import Match, NearMiss, Op, Pattern, Rewriter, TensorType, Value
from nki.graph.patterns.attention.match import recognise
from nkilib.core.attention_tkg import AttnTKGConfig, attention_tkg
from nkilib.errors import KernelLimit
from nkilib.patterns.matching import unrepeated

HIDDEN = -3.0e4
"""A score that is so low, or lower, has the weight 0 next to any other: the lowest float16 is among them."""

_MOST_ROWS = 128
_MOVES = frozenset({"broadcast_in_dim", "convert", "reshape", "transpose"})


@nki.jit
def decode(q: Any, k: Any, v: Any, mask: Any, rows: bool) -> Any:
    """`attention_tkg` of queries that are scaled, over all keys of a cache; `rows`: it has a row for each key."""
    batch, heads, _, head = q.shape
    keys = v.shape[2]
    cfg = AttnTKGConfig(
        bs=batch, q_head=heads, s_active=1, curr_sprior=keys, full_sprior=keys, d_head=head, tp_k_prior=rows
    )
    new = k[:, :, keys - 1 : keys, :] if rows else k[:, 0, :, keys - 1 : keys]
    out = nl.ndarray((batch, heads, head, 1), dtype=q.dtype, buffer=nl.shared_hbm)
    return attention_tkg(q, new, v[:, :, keys - 1 : keys, :], k, v, mask, out, cfg, None)[0]


@dataclass(frozen=True, slots=True)
class Decoding:
    """An attention of few queries, as `decode` takes it.

    Attributes:
        found: with the facts of the graph compiler's attention.
        dims: letters of the dimensions of q, k, v and the result.
        sizes: of each letter.
        shared: letters that queries and keys have; `batch` is their product.
        heads: letters that queries alone have, `count` of them for each head of keys.
        dtype: of the model's result.
    """

    found: Match
    dims: dict[str, str]
    sizes: dict[str, int]
    shared: list[str]
    heads: list[str]
    dtype: Any

    @property
    def q(self) -> Value:
        """Queries."""
        return self.found.inputs[0]

    @property
    def k(self) -> Value:
        """Keys."""
        return self.found.inputs[1]

    @property
    def v(self) -> Value:
        """Values."""
        return self.found.inputs[2]

    @property
    def scale(self) -> float:
        """Of scores."""
        return float(self.found.facts["scale"])

    @property
    def batch(self) -> int:
        """Heads of keys of all sequences."""
        return prod(self.sizes[letter] for letter in self.shared)

    @property
    def count(self) -> int:
        """Queries of each of them."""
        return prod(self.sizes[letter] for letter in self.heads)

    def queries(self, r: Rewriter) -> Value:
        """With the dimensions `shared`, `heads`, and d."""
        return _turned(r, self.q, self.dims["q"], [*self.shared, *self.heads, "d"])

    def seen(self, r: Rewriter) -> tuple[Value, list[str]]:
        """Which keys count: truth values that are not repeated, and the letters of their dimensions."""
        if len(self.found.inputs) == 3:
            return r.constant(np.ones((), np.bool_)), []
        seen, hidden = self.found.inputs[3], self.found.facts["hidden"]
        if hidden is None:
            seen = _seen(r, seen)
        elif hidden > HIDDEN:
            raise NearMiss(f"hidden scores are {hidden}, which counts beside others")
        narrow, places = unrepeated(r, seen)
        return narrow, [str(self.found.facts["mask_dims"])[place] for place in places]

    def finished(self, r: Rewriter, value: Value) -> Sequence[Value]:
        """The model's result, of the kernel's."""
        order = [*self.shared, *self.heads, "f"]
        made = r.convert(r.reshape(value, [self.sizes[letter] for letter in order]), self.dtype)
        assert self.found.finish is not None, "the result of attention is moved to where the model has it"
        return self.found.finish(r, [_turned(r, made, "".join(order), list(self.dims["out"]))])


def decoding(r: Rewriter, op: Op) -> Decoding | None:
    """The attention whose last product an operation is, if few queries share a head of keys."""
    found = recognise(r, op)
    if found is None:
        return None
    q, k, v = found.inputs[:3]
    dims = {name: str(found.facts[f"{name}_dims"]) for name in ("q", "k", "v", "out")}
    sizes = dict(zip(dims["q"] + dims["k"] + dims["v"], (*q.type.shape, *k.type.shape, *v.type.shape), strict=True))
    shared = [letter for letter in dims["out"] if letter in dims["k"] and letter not in "qf"]
    heads = [letter for letter in dims["out"] if letter not in shared and letter != "f"]
    made = Decoding(found, dims, sizes, shared, heads, op.results[0].type.dtype)
    many = made.count > _MOST_ROWS or found.facts["causal"] is not None  # queries are those of a prompt
    return None if many else made


def match(r: Rewriter, op: Op) -> Match | None:
    """The attention whose last product an operation is, if few queries share a head of keys."""
    found = decoding(r, op)
    if found is None:
        return None
    sizes, batch, count = found.sizes, found.batch, found.count
    rows = found.dims["k"].index("k") < found.dims["k"].index("d")
    keys = ("k", "d") if rows else ("d", "k")
    queries, layout = found.queries(r), tuple(sizes[each] for each in keys)
    tensors = (
        r.reshape(r.same("multiply", queries, r.full(found.scale, queries.type)), (batch, count, 1, sizes["d"])),
        r.reshape(_turned(r, found.k, found.dims["k"], [*found.shared, *keys]), (batch, 1, *layout)),
        r.reshape(_turned(r, found.v, found.dims["v"], [*found.shared, "k", "f"]), (batch, 1, sizes["k"], sizes["f"])),
        r.reshape(_mask(r, found), (sizes["k"], batch, count, 1)),
    )
    return Match(tensors, found.found.outputs, {"rows": rows}, lambda r, values: found.finished(r, values[0]))


def _turned(r: Rewriter, value: Value, dims: str, wanted: Sequence[str]) -> Value:
    return r.transpose(value, [dims.index(letter) for letter in wanted])


def _mask(r: Rewriter, found: Decoding) -> Value:
    """Which keys count: truth values with the dimensions k, `shared` and `heads`."""
    narrow, letters = found.seen(r)
    wanted = ["k", *found.shared, *found.heads]
    order = [letter for letter in wanted if letter in letters]
    turned = r.transpose(narrow, [letters.index(letter) for letter in order])
    return r.broadcast(turned, [found.sizes[letter] for letter in wanted], [wanted.index(letter) for letter in order])


def _seen(r: Rewriter, value: Value) -> Value:
    """Where a mask of numbers is 0. Raises NearMiss for one that is not known to be made of 0 and low numbers."""
    op = r.maker(value)
    if op is not None and op.name in _MOVES:
        inner = _seen(r, op.operands[0])
        kind = TensorType(value.type.shape, nl.bool_)
        return inner if op.name == "convert" else r.op(op.name, [inner], [kind], op.attributes)[0]
    numbers = [r.scalar_of(each) for each in op.operands[1:]] if op is not None and op.name == "select" else [None]
    if op is None or any(number is None or not (number == 0 or number <= HIDDEN) for number in numbers):
        raise NearMiss("its mask has numbers that are not known, the kernel takes one that hides keys")
    condition = r.broadcast(op.operands[0], value.type.shape, ())
    if numbers[0] == numbers[1]:
        return r.full(numbers[0] == 0, condition.type)
    return condition if numbers[0] == 0 else r.same("not", condition)


ATTENTION_DECODE = Pattern("attention_decode", match, decode, choose="faster", refuses=(KernelLimit,))
