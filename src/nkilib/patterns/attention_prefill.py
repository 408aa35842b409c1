"""Attention of all queries of a prompt at once, causal or not, with heads of keys that several heads of queries share.

The kernel is `nkilib.core.attention.attention_cte`. What recognises attention is that of the graph compiler; here it
gets the layout of the kernel: heads in the batch, those of one head of keys beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import nki
import nki.language as nl
from nki.graph.patterns import Match, NearMiss, Op, Pattern, Rewriter, Value
from nki.graph.patterns.attention.match import recognise
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.errors import KernelLimit

_NARROW = (nl.bfloat16, nl.float16)


@nki.jit
def prefill(q: Any, k: Any, v: Any, scale: float, causal: bool, rows: str) -> Any:
    """`attention_cte` of tensors whose last dimension is that of the head where `rows` names them."""
    return attention_cte(q, k, v, scale, causal, tp_q="q" in rows, tp_k="k" in rows)


def match(r: Rewriter, op: Op) -> Match | None:
    """The attention whose last product an operation is, without masks other than the causal one."""
    found = recognise(r, op)
    if found is None:
        return None
    q, k, v, *masks = found.inputs
    dims = {name: str(found.facts[f"{name}_dims"]) for name in ("q", "k", "v", "out")}
    check(found, q, masks)
    shared = [letter for letter in dims["out"] if letter in dims["k"] and letter not in "qf"]
    groups = [letter for letter in dims["out"] if letter not in shared and letter not in "qf"]
    rows = "".join(name for name in "qk" if dims[name].index(name) < dims[name].index("d"))
    tensors = (
        batched(r, q, dims["q"], [*shared, *groups], "qd" if "q" in rows else "dq"),
        batched(r, k, dims["k"], shared, "kd" if "k" in rows else "dk"),
        batched(r, v, dims["v"], shared, "kf"),
    )
    facts = {"scale": found.facts["scale"], "causal": found.facts["causal"] is not None, "rows": rows}
    sizes = dict(zip(dims["q"] + dims["v"], (*q.type.shape, *v.type.shape), strict=True))
    order = [*shared, *groups, "q", "f"]
    dtype = op.results[0].type.dtype

    def finish(r: Rewriter, values: Sequence[Value]) -> Sequence[Value]:
        made = r.convert(r.reshape(values[0], [sizes[letter] for letter in order]), dtype)
        assert found.finish is not None, "the result of attention is moved to where the model has it"
        return found.finish(r, [r.transpose(made, [order.index(letter) for letter in dims["out"]])])

    return Match(tensors, found.outputs, facts, finish)


def check(found: Match, q: Value, masks: Sequence[Value]) -> None:
    """Raise NearMiss for what the kernel does not compute, or not as exactly as the model."""
    if masks:
        raise NearMiss("it has a mask, the kernel takes a causal one")
    if found.facts["causal"] not in (None, 0):
        raise NearMiss(f"its first query sees {found.facts['causal']} keys before its own")
    if q.type.dtype not in _NARROW:
        raise NearMiss(f"it is {q.type.dtype}, the kernel multiplies bfloat16")


def batched(r: Rewriter, value: Value, dims: str, batch: Sequence[str], last: str) -> Value:
    """A tensor with the dimensions `batch` as one, which repeats where it has none of them, then two others."""
    order = [*batch, *last]
    turned = r.transpose(value, [dims.index(letter) for letter in order])
    return r.reshape(turned, (prod(turned.type.shape[:-2]), *turned.type.shape[-2:]))


ATTENTION_PREFILL = Pattern("attention_prefill", match, prefill, choose="faster", refuses=(KernelLimit,))
