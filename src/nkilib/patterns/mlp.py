"""The MLP of a transformer: two products with an activation between them, or with a gate, after a norm or without one::

    out = (activation(n @ gate) * (n @ up)) @ down      n = norm(x), or x
    out = activation(n @ up + b_up) @ down + b_down

The kernel is `nkilib.core.mlp.mlp`. What lies between the products stays on chip, and so does what the norm makes, if
nobody else needs it.
"""

from __future__ import annotations

from typing import Any

import nki
from nki.graph.patterns import ELEMENTWISE, Match, NearMiss, Op, Pattern, Rewriter, Value, unconverted
from nkilib.core.mlp import mlp
from nkilib.core.utils.common_types import ActFnType, NormType
from nkilib.errors import KernelLimit
from nkilib.patterns.matching import Linear, activation, bare, ends, linear, norm, of_linear, row, rows

_MOST_OPERATIONS = 32
"""Of an activation."""

_BIAS = {"gate": "gate_proj_bias_tensor", "up": "up_proj_bias_tensor", "down": "down_proj_bias_tensor"}


@nki.jit
def fused_mlp(*tensors: Any, names: str, activation: str, norm: str, eps: float) -> Any:
    """`mlp` of tensors that are named in the order in which they are given."""
    given: dict[str, Any] = dict(zip(names.split(), tensors, strict=True))
    gate = given.pop("gate_proj_weights_tensor", None)
    return mlp(
        gate_proj_weights_tensor=gate,
        skip_gate_proj=gate is None,
        activation_fn=ActFnType[activation],
        normalization_type=NormType[norm],
        eps=eps,
        **given,
    )[0]


def match(r: Rewriter, op: Op) -> Match | None:
    """The MLP whose last product, with its bias and its conversion, an operation ends."""
    down = linear(r, op) if len(op.results) == 1 else None
    inner = None if down is None or not ends(r, op) else _inner(r, down.x)
    if down is None or inner is None:
        return None
    function, products = inner
    x = bare(r, products["up"].x)
    if any(bare(r, each.x) is not x for each in products.values()):
        raise NearMiss("its first products read different rows")
    if x.type.dtype is not op.results[0].type.dtype:
        raise NearMiss(f"it makes {op.results[0].type.dtype} of {x.type.dtype}, the kernel has one dtype")
    before = norm(r, r.maker(x))
    named = _tensors(r, products | {"down": down})
    if before is not None:
        named["normalization_weights_tensor"] = row(r, before.weight)
        if before.bias is not None:
            named["normalization_bias_tensor"] = row(r, before.bias)
    named["hidden_tensor"] = rows(r, x if before is None else before.x)
    facts = {
        "names": " ".join(named),
        "activation": function,
        "norm": "NO_NORM" if before is None else before.kind,
        "eps": 1e-6 if before is None else before.eps,
    }
    shape = op.results[0].type.shape
    return Match(tuple(named.values()), op.results, facts, lambda r, values: (r.reshape(values[0], shape),))


def _inner(r: Rewriter, value: Value) -> tuple[str, dict[str, Linear]] | None:
    """The activation and the first products, with a gate or without."""
    value = bare(r, value)
    plain = activation(r, value)
    up = None if plain is None else of_linear(r, plain[1])
    if plain is not None and up is not None:
        return plain[0], {"up": up}
    op = r.maker(value, "multiply")
    for gated, other in zip(op.operands, op.operands[::-1], strict=True) if op is not None else ():
        function = activation(r, gated)
        gate = None if function is None else of_linear(r, function[1])
        up = of_linear(r, other)
        if function is not None and gate is not None and up is not None:
            return function[0], {"gate": gate, "up": up}
        if up is not None and function is None and _is_made_of(r, gated, up.x):
            names = ", ".join(ActFnType.__members__)
            raise NearMiss(f"the function of its gate is unknown, the kernel has {names}")
    return None


def _is_made_of(r: Rewriter, value: Value, x: Value) -> bool:
    """Whether a value is a function of one product with the rows `x`, element by element."""
    products: set[Value] = set()
    pending, seen = [value], set[Value]()
    while pending and len(seen) < _MOST_OPERATIONS:
        now = unconverted(r, pending.pop())
        op = r.maker(now)
        if now in seen or r.scalar_of(now) is not None:
            continue
        seen.add(now)
        found = of_linear(r, now)
        if found is not None and bare(r, found.x) is bare(r, x):
            products.add(now)
        elif op is not None and op.name in ELEMENTWISE:
            pending += op.operands
        else:
            return False
    return len(products) == 1 and value not in products


def _tensors(r: Rewriter, products: dict[str, Linear]) -> dict[str, Value]:
    """Weights and biases by the names of the kernel's arguments."""
    found = {f"{name}_proj_weights_tensor": each.matrix(r) for name, each in products.items()}
    return found | {_BIAS[name]: row(r, unconverted(r, each.bias)) for name, each in products.items() if each.bias}


MLP = Pattern("mlp", match, fused_mlp, choose="faster", refuses=(KernelLimit,))
