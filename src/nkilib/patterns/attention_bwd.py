"""Gradients of attention: three products of the change of its scores, which is made on chip, as its weights are.

The kernels are the one behind the derivative of `nkilib.core.attention.attention_cte` and that one itself, whose sums
it needs. What recognises the attention is that of the graph compiler::

    dS = P * dP - P * rowsum(P * dP)     dP = dO @ V.T     dV = P.T @ dO     dQ = dS @ K     dK = dS.T @ Q

The attention itself stays for who asks next: its weights are no reason any more to make them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import nki
import nki.language as nl
from nki.graph.patterns import Match, Op, Pattern, Rewriter, TensorType, Value
from nki.graph.patterns.attention.layouts import Dims, Index, NotAligned, Seen, bound, flat, product_dims, unmoved
from nki.graph.patterns.attention.match import Recognised, recognise_shared
from nki.graph.patterns.attention.scores import Attention, Mask, scaled
from nkilib.core.attention.attention_cte import attention_with_sums
from nkilib.core.attention.backward.prefill import prefill_gradients
from nkilib.errors import KernelLimit
from nkilib.patterns.attention_decode import HIDDEN
from nkilib.patterns.attention_prefill import batched, check
from nkilib.patterns.softmax_gradient import Change, changes


@nki.jit
def gradients(q: Any, k: Any, v: Any, gradient: Any, scale: float, causal: bool, rows: str) -> Any:
    """Gradients of q, k and v, whose last dimension is that of the head where `rows` names them."""
    turned = "q" in rows, "k" in rows, False
    out, shift, inverse = attention_with_sums(q, k, v, None, None, None, scale, causal, None, *turned, None)
    made = prefill_gradients(q, k, v, out, shift, inverse, gradient, None, None, None, scale, causal, None, *turned)
    return tuple(made)


def match(r: Rewriter, op: Op) -> Match | None:
    """The gradients of an attention, if an operation is the last of their products."""
    for change in _changes(r, op):
        with suppress(NotAligned):
            return _matched(r, op, change)
    return None


def _changes(r: Rewriter, op: Op) -> Iterator[Change]:
    """What an operation multiplies, if it is the change of scores."""
    for operand, dims in zip(op.operands, product_dims(op)[:2], strict=True) if op.name == "dot_general" else ():
        with suppress(NotAligned):
            yield from changes(r, scaled(r, unmoved(r, operand, dims))[0])


# ----------------------------------------------------------------------------------------------------------- products


@dataclass(frozen=True, slots=True)
class _Product:
    """One of the products that gradients are.

    Attributes:
        op: the product.
        dims: a letter for each index of its result, slowest first.
        number: what the change, or the weights, and the other operand were multiplied with before.
    """

    op: Op
    dims: str
    number: float


def _matched(r: Rewriter, op: Op, change: Change) -> Match | None:
    forward = next(_forward(r, change), None)
    if forward is None:
        return None
    product, whole, weights = forward
    attention = whole.attention
    letters = dict(whole.letters)
    letters |= _renamed(change.weights, weights, letters)
    if change.mask is not None and not any(_is_mask(change.mask, each, letters) for each in attention.masks):
        return None
    result, values = _gradient_of_result(r, attention, change)
    letters |= _renamed(values, attention.value, letters)
    wanted = (
        (change.scores, attention.key),
        (change.scores, attention.query),
        (attention.weights, result),
    )
    products = [_product_of(r, op, one, other, letters) for one, other in wanted]
    if all(each.op is not op for each in products):
        return None  # it is one of the other operand
    check(whole.match, whole.match.inputs[0], whole.match.inputs[3:])
    return _replaced(r, op, product, whole.match, (result.value, _letters(result.dims, letters)), products)


def _forward(r: Rewriter, change: Change) -> Iterator[tuple[Op, Recognised, Seen]]:
    """The product of weights and values, with the attention that it is the end of, and what the change has of it."""
    for each in list(r.written):
        found = recognise_shared(r, each) if each.name == "dot_general" else None
        if found is None:
            continue
        weights = found.attention.weights
        if not change.normal:
            quotient = r.maker(weights.value, "divide")
            weights = weights if quotient is None else unmoved(r, quotient.operands[0], weights.dims)
        if weights.value is change.weights.value:
            yield each, found, weights


def _gradient_of_result(r: Rewriter, attention: Attention, change: Change) -> tuple[Seen, Seen]:
    """dO, and the values beside it, of ``dP = dO @ V.T``."""
    product = r.maker(change.gradient.value, "dot_general")
    if product is None:
        raise NotAligned
    sides = [
        unmoved(r, value, dims, exact=True)
        for value, dims in zip(product.operands, bound(product, change.gradient.dims), strict=True)
    ]
    for one, other in (sides, sides[::-1]):
        if other.value is attention.value.value:
            return one, other
    raise NotAligned


def _renamed(seen: Seen, known: Seen, letters: Mapping[Index, str]) -> dict[Index, str]:
    """Letters of the indices of a value, which is seen elsewhere with indices that have letters."""
    found: dict[Index, str] = {}
    for mine, theirs in zip(flat(seen.dims), flat(known.dims), strict=True):
        left = list(mine)
        for index in theirs:
            one = left.pop(0) if left else None
            if one is not None and one.size > index.size and one.size % index.size == 0:
                one.split(index.size)
                one, rest = one.parts
                left.insert(0, rest)
            if one is None or one.size != index.size or index not in letters:
                raise NotAligned
            found[one] = letters[index]
        if left:
            raise NotAligned
    return found


def _is_mask(seen: Seen, mask: Mask, letters: Mapping[Index, str]) -> bool:
    """Whether truth values are those of a mask, so that what it hides has no weight."""
    if seen.value is not mask.seen.value or mask.hidden is None or mask.hidden > HIDDEN:
        return False
    return all(letters.get(index) == letter for index, letter in _renamed(seen, mask.seen, letters).items())


def _letters(dims: Dims, letters: Mapping[Index, str]) -> str:
    order = [index for dim in flat(dims) for index in dim]
    if any(index not in letters for index in order):
        raise NotAligned
    return "".join(letters[index] for index in order)


def _product_of(r: Rewriter, last: Op, value: Seen, other: Seen, letters: Mapping[Index, str]) -> _Product:
    """The product of two values, however they were moved and scaled, among what is written, and `last`."""
    for op in (each for each in (last, *reversed(r.written)) if each.name == "dot_general"):
        with suppress(NotAligned):
            left, right, own = product_dims(op)
            found = [_sides(r, operand, dims) for operand, dims in zip(op.operands, (left, right), strict=True)]
            for (rounded, _), (_, exact) in (found, found[::-1]):
                (one, first), (two, second) = rounded, exact
                if one.value is value.value and two.value is other.value:
                    names = _renamed(one, value, letters) | _renamed(two, other, letters)
                    return _Product(op, _letters(own, names), first * second)
    raise NotAligned


def _sides(r: Rewriter, value: Value, dims: Dims) -> list[tuple[Seen, float]]:
    """An operand before it was moved and scaled, with conversions that round, and without."""
    return [scaled(r, unmoved(r, value, dims, exact=exact), exact=exact) for exact in (False, True)]


# -------------------------------------------------------------------------------------------------------------- call


def _replaced(
    r: Rewriter,
    op: Op,
    product: Op,
    whole: Match,
    gradient: tuple[Value, str],
    products: Sequence[_Product],
) -> Match:
    facts, (q, k, v) = whole.facts, whole.inputs[:3]
    dims = {name: str(facts[f"{name}_dims"]) for name in ("q", "k", "v", "out")}
    sizes = dict(zip(dims["q"] + dims["v"], (*q.type.shape, *v.type.shape), strict=True))
    heads = [letter for letter in dims["out"] if letter not in "qf"]
    rows = "".join(name for name in "qk" if dims[name].index(name) < dims[name].index("d"))
    orders = ("qd" if "q" in rows else "dq"), ("kd" if "k" in rows else "dk"), "kf", "qf"
    narrow = r.convert(r.reshape(gradient[0], [sizes[letter] for letter in gradient[1]]), q.type.dtype)
    given = ((q, dims["q"]), (k, dims["k"]), (v, dims["v"]), (narrow, gradient[1]))
    tensors = tuple(
        batched(r, _repeated(r, value, has, heads, sizes), "".join(heads) + _rest(has, heads), heads, last)
        for (value, has), last in zip(given, orders, strict=True)
    )
    scale = float(facts["scale"])
    numbers = [each.number / number for each, number in zip(products, (scale, scale, 1.0), strict=True)]
    order = sorted(range(len(products)), key=lambda place: products[place].op is not op)

    def finish(r: Rewriter, values: Sequence[Value]) -> Sequence[Value]:
        return [
            _placed(r, values[place], [*heads, *orders[place]], products[place], numbers[place], sizes)
            for place in order
        ]

    outputs = tuple(products[place].op.results[0] for place in order)
    told = {"scale": scale, "causal": facts["causal"] is not None, "rows": rows}
    return Match(tensors, outputs, told, finish, product.results)


def _rest(dims: str, heads: Sequence[str]) -> str:
    """The letters that are not heads."""
    return "".join(letter for letter in dims if letter not in heads)


def _repeated(r: Rewriter, value: Value, dims: str, heads: Sequence[str], sizes: Mapping[str, int]) -> Value:
    """A tensor with all heads first, which repeats where it has none of them: each head gets a gradient of its own."""
    order = [*(letter for letter in heads if letter in dims), *_rest(dims, heads)]
    turned = r.transpose(value, [dims.index(letter) for letter in order])
    wanted = [*heads, *_rest(dims, heads)]
    return r.broadcast(turned, [sizes[letter] for letter in wanted], [wanted.index(letter) for letter in order])


def _placed(
    r: Rewriter, value: Value, order: Sequence[str], product: _Product, number: float, sizes: Mapping[str, int]
) -> Value:
    """A gradient as the model's product has it."""
    kind = product.op.results[0].type
    turned = r.transpose(
        r.reshape(value, [sizes[letter] for letter in order]), [order.index(letter) for letter in product.dims]
    )
    wide = r.convert(r.reshape(turned, kind.shape), nl.float32)
    if number != 1.0:
        wide = r.same("multiply", wide, r.full(number, TensorType(kind.shape, nl.float32)))
    return r.convert(wide, kind.dtype)


ATTENTION_BWD = Pattern("attention_bwd", match, gradients, choose="faster", refuses=(KernelLimit,))
