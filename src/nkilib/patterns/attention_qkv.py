"""Queries, keys and values of a transformer: three products with the same rows, heads normalised and rotated::

    n = norm(x), or x
    q, k = rotate(norm(heads(n @ w_q))), rotate(norm(heads(n @ w_k)))      norms of heads, or none
    v = n @ w_v

The kernel is `nkilib.core.qkv`, which loads the rows once, and multiplies them with all weights side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import nki
import nki.language as nl
from nki.graph.patterns import Match, NearMiss, Op, Pattern, Rewriter, TensorType, Value
from nkilib.core.qkv import qkv
from nkilib.core.utils.common_types import NormType, QKNormConfig, QKVOutputLayout
from nkilib.errors import KernelLimit
from nkilib.patterns.heads import Heads, Rotated, beside, by_token, heads_of, moved_from, rotated
from nkilib.patterns.matching import ends, last, linear, norm, row

_NEAR = 256
"""Operations that are looked at for the other products of the same rows."""


@nki.jit
def projected(*tensors: Any, names: str, norm: str, eps: float, heads: tuple[int, int, int], head_eps: float) -> Any:
    """`qkv` of tensors that are named in the order in which they are given; heads: of queries, of keys, features.

    A step of decoding has three results (B, S, features), a prompt one, (heads, B, S, features of a head).
    """
    given: dict[str, Any] = dict(zip(names.split(), tensors, strict=True))
    x, (queries, keys, head) = given["input"], heads
    step = x.shape[1] == 1
    for name in ("k_cache", "v_cache") if step else ():  # keys and values have tensors of their own so
        given[name] = nl.ndarray((*x.shape[:2], keys * head), dtype=x.dtype, buffer=nl.shared_hbm)
    return qkv(
        output_layout=QKVOutputLayout.BSD if step else QKVOutputLayout.NBSd,
        fused_norm_type=NormType[norm],
        norm_eps=eps,
        fused_rope=True,
        d_head=head,
        num_q_heads=queries,
        num_kv_heads=keys,
        qk_norm_pre_rope=QKNormConfig(eps=head_eps) if "qk_norm_pre_rope_q_gamma" in given else None,
        **given,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Queries, keys or values: the value that the kernel makes, its heads, and how they are rotated."""

    end: Value
    heads: Heads
    turn: Rotated | None

    @property
    def width(self) -> int:
        """Columns of the product."""
        return last(self.heads.made)


def match(r: Rewriter, op: Op) -> Match | None:
    """The queries, keys and values the last of which an operation ends."""
    if len(op.results) != 1 or op.name not in ("add", "convert", "dot_general"):
        return None
    mine = _part(r, op)
    if mine is None:
        if rotated(r, op) is not None:
            raise NearMiss("what is rotated is no product whose columns are heads, the kernel rotates all features")
        return None
    x = mine.heads.product.x
    expected = sum(user.name == "dot_general" and user.operands[0] is x for user in r.users(x))
    recent = [*r.written[-_NEAR:], op]
    products = [each for each in recent if each.name == "dot_general" and each.operands[0] is x]
    if mine.turn is not None and expected != 3:
        raise NearMiss(f"{expected} products read its rows, the kernel makes queries, keys and values")
    if expected != 3 or len(products) != expected:
        return None  # or the others come later
    parts = {part.heads.product.weight: part for each in recent if (part := _part(r, each, x)) is not None}
    if len(parts) != 3 or all(part.end is not mine.end for part in parts.values()):
        return None
    turned = sorted((part for part in parts.values() if part.turn is not None), key=lambda part: -part.width)
    plain = [part for part in parts.values() if part.turn is None]
    return _matched(r, op, x, [*turned, *plain]) if len(turned) == 2 else None


def _part(r: Rewriter, op: Op, x: Value | None = None) -> _Part | None:
    """What an operation ends, if that is a rotation or a product; of the rows `x`, if they are given."""
    turn = rotated(r, op)
    if turn is not None:
        heads = heads_of(r, turn.x)
    else:
        product = linear(r, op) if op.name in ("add", "convert", "dot_general") else None
        whole = product is not None and ends(r, op)
        heads = Heads(product, op.results[0], (), None) if product is not None and whole else None
    if heads is None or (x is not None and heads.product.x is not x):
        return None
    return _Part(op.results[0], heads, turn)


def _matched(r: Rewriter, op: Op, x: Value, parts: Sequence[_Part]) -> Match:
    queries, keys, values = (part.width for part in parts)
    head = last(parts[0].end)
    if keys != values or last(parts[1].end) != head or queries % head or keys % head:
        raise NearMiss(f"{queries}, {keys} and {values} columns in heads of {head}, keys and values have as many")
    *before, rows, width = x.type.shape
    named = _weights(r, parts)
    for name, factors in _angles(r, parts[:2], head).items():
        named[name] = r.reshape(factors, (prod(before), rows, head))
    fused = norm(r, r.maker(x)) if r.uses.get(x) == len(parts) else None
    if fused is not None:
        named["gamma_norm_weights"] = row(r, fused.weight)
        if fused.bias is not None:
            named["layer_norm_bias"] = row(r, fused.bias)
    named["input"] = r.reshape(x if fused is None else fused.x, (prod(before), rows, width))
    inner = parts[0].heads.norm
    facts = {
        "names": " ".join(named),
        "norm": "NO_NORM" if fused is None else fused.kind,
        "eps": 1e-6 if fused is None else fused.eps,
        "heads": (queries // head, keys // head, head),
        "head_eps": 1e-6 if inner is None else inner.eps,
    }
    return _finished(op, parts, tuple(named.values()), facts)


def _angles(r: Rewriter, parts: Sequence[_Part], head: int) -> dict[str, Value]:
    """Cosines and sines of queries, and those of keys if they differ, by the names of the kernel's arguments."""
    found = {}
    for kind, part in zip(("", "k_"), parts, strict=True):
        assert part.turn is not None, "queries and keys are rotated"
        places = part.heads.places(head)
        for name, wide in (("cos_cache", part.turn.cos), ("sin_cache", part.turn.sin)):
            found[f"{kind}{name}"] = by_token(r, wide, places, part.width // head)
    same = all(moved_from(r, found[f"k_{name}"]) == moved_from(r, found[name]) for name in ("cos_cache", "sin_cache"))
    return {name: value for name, value in found.items() if not (same and name.startswith("k_"))}


def _weights(r: Rewriter, parts: Sequence[_Part]) -> dict[str, Value]:
    """Weights, biases and weights of norms of heads, by the names of the kernel's arguments."""
    products = [part.heads.product for part in parts]
    named = {"fused_qkv_weights": r.constant(beside(r, [each.matrix(r) for each in products], "weights"))}
    if any(each.bias is not None for each in products):
        kinds = [TensorType((part.width,), part.end.type.dtype) for part in parts]
        pairs = zip(products, kinds, strict=True)
        biases = [r.full(0, kind) if each.bias is None else each.bias for each, kind in pairs]
        named["bias"] = r.constant(beside(r, biases, "biases").reshape(1, -1))
    norms = [part.heads.norm for part in parts[:2]]
    if (norms[0] is None) != (norms[1] is None):
        raise NearMiss("queries or keys alone are normalised, the kernel takes both or none")
    for kind, each in zip("qk", norms, strict=True):
        if each is not None:
            named[f"qk_norm_pre_rope_{kind}_gamma"] = row(r, each.weight)
    if norms[0] is not None and norms[1] is not None and norms[0].eps != norms[1].eps:
        raise NearMiss(f"norms of heads add {norms[0].eps} and {norms[1].eps}, the kernel one number")
    return named


def _finished(op: Op, parts: Sequence[_Part], tensors: tuple[Value, ...], facts: dict[str, Any]) -> Match:
    """The match, whose first output is the result of the operation that is looked at."""
    first = next(n for n, part in enumerate(parts) if part.end is op.results[0])
    order = [first, *(n for n in range(len(parts)) if n != first)]

    def finish(r: Rewriter, values: Sequence[Value]) -> Sequence[Value]:
        made = []
        divided = values if len(values) > 1 else _divided(r, values[0], parts)
        for part, value in zip(parts, divided, strict=True):
            moved = r.reshape(part.heads.moved(r, value), part.end.type.shape)
            made.append(r.convert(moved, part.end.type.dtype))
        return [made[n] for n in order]

    return Match(tensors, tuple(parts[n].end for n in order), facts, finish)


def _divided(r: Rewriter, value: Value, parts: Sequence[_Part]) -> list[Value]:
    """The columns of each product of ``(heads, B, S, features)``; moves that follow are made one with these."""
    _, *rest, features = value.type.shape
    found, start = [], 0
    for part in parts:
        count = part.width // features
        limits = (start + count, *rest, features)
        kind = TensorType((count, *rest, features), value.type.dtype)
        heads = r.one(
            "slice",
            [value],
            kind,
            start_indices=(start, 0, 0, 0),
            limit_indices=limits,
            strides=(1, 1, 1, 1),
        )
        found.append(r.reshape(r.transpose(heads, (1, 2, 0, 3)), (*rest, part.width)))
        start += count
    return found


ATTENTION_QKV = Pattern("attention_qkv", match, projected, choose="faster", refuses=(KernelLimit,))
