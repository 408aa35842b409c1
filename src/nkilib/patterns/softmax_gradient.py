"""The gradient of a softmax over one dimension, as PyTorch and JAX write it::

    P * dP - P * rowsum(P * dP)                           P = E / S, S = rowsum(E), E = exp(scores - maximum)
    E * (dP / S - rowsum(dP * E / (S * S)))

Values are seen before they were moved, each with the indices that its dimensions run over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from nki.graph.patterns import Rewriter
from nki.graph.patterns.attention.layouts import Index, NotAligned, Seen, of_shape, unmoved
from nki.graph.patterns.attention.scores import equal, reduced

Factors = list[Seen]
_WHOLE = 2


@dataclass(frozen=True, slots=True)
class Change:
    """The change of the scores.

    Attributes:
        scores: the gradient of the scores; of those that a mask hides it is 0.
        weights: P, or E where `normal` is false, with the same indices.
        gradient: of P, with the same indices.
        mask: where it is false the gradient was set to 0; None if that was not done.
    """

    scores: Seen
    weights: Seen
    gradient: Seen
    normal: bool
    mask: Seen | None = None


def changes(r: Rewriter, scores: Seen) -> Iterator[Change]:
    """What a value is, if it is the gradient of a softmax; the weights and their gradient may be each other."""
    for place in reversed(range(len(scores.value.type.shape))):
        with suppress(NotAligned):  # which cuts indices, so that new ones are tried for another dimension
            seen = Seen(scores.value, of_shape(scores.value.type.shape))
            select = r.maker(seen.value, "select")
            if select is None:
                yield from _over(r, seen, seen, seen.dims[place])
            elif r.scalar_of(select.operands[2]) == 0:
                mask, inner = (unmoved(r, value, seen.dims) for value in select.operands[:2])
                yield from (replace(each, mask=mask) for each in _over(r, seen, inner, seen.dims[place]))


def _over(r: Rewriter, scores: Seen, inner: Seen, keys: Sequence[Index]) -> Iterator[Change]:
    terms = _terms(r, inner)
    if len(terms) != _WHOLE:
        return
    for (sign, whole), (other, part) in (terms, terms[::-1]):
        if sign != 1 or len(whole) != _WHOLE or len(part) != _WHOLE:
            continue
        for weights, gradient in (whole, whole[::-1]):
            for one, wide in (part, part[::-1]):
                if equal(one, weights):
                    yield from _change(r, scores, keys, (weights, gradient), (other, wide))


def _change(
    r: Rewriter, scores: Seen, keys: Sequence[Index], whole: tuple[Seen, Seen], sums: tuple[int, Seen]
) -> Iterator[Change]:
    """The change, if its weights are multiplied with these, and with their sums, which have a sign."""
    weights, gradient = whole
    sign, wide = sums
    inner = _summed(r, wide, keys, sign) or []
    raw = _divided(r, gradient, weights, keys)
    if _are(inner, (weights, gradient)):
        yield Change(scores, weights, gradient, True)
    elif raw is not None and _weighed(r, inner, weights, raw, keys):
        yield Change(scores, weights, raw, False)


def _terms(r: Rewriter, seen: Seen, sign: int = 1, times: tuple[Seen, ...] = ()) -> list[tuple[int, Factors]]:
    """Products that are added up, with signs; a factor of a sum is one of all of them."""
    seen = unmoved(r, seen.value, seen.dims)
    if r.scalar_of(seen.value) == 0:
        return []
    op = r.maker(seen.value)
    name = "" if op is None else op.name
    if op is not None and name in ("add", "subtract", "negate"):
        signs = (-sign,) if name == "negate" else (sign, sign if name == "add" else -sign)
        parts = [Seen(value, seen.dims) for value in op.operands]
        return [term for each, one in zip(parts, signs, strict=True) for term in _terms(r, each, one, times)]
    if op is not None and name == "multiply":
        one, other = (unmoved(r, value, seen.dims) for value in op.operands)
        for factor, inner in ((one, other), (other, one)):
            maker = r.maker(inner.value)
            if maker is not None and maker.name in ("add", "subtract"):
                return _terms(r, inner, sign, (*times, factor))
    return [(sign, [*times, *_factors(r, seen)])]


def _factors(r: Rewriter, seen: Seen) -> Factors:
    """What is multiplied, before all moves."""
    seen = unmoved(r, seen.value, seen.dims)
    op = r.maker(seen.value, "multiply")
    return [seen] if op is None else [each for value in op.operands for each in _factors(r, Seen(value, seen.dims))]


def _summed(r: Rewriter, wide: Seen, keys: Sequence[Index], sign: int) -> Factors | None:
    """The factors whose products' sums over the keys a value has, repeated along them, if `sign` times that is < 0."""
    found = reduced(r, wide.value, wide.dims, keys, "add")
    terms = [] if found is None else _terms(r, found, sign)
    return terms[0][1] if len(terms) == 1 and terms[0][0] == -1 else None


def _are(found: Factors, wanted: Sequence[Seen]) -> bool:
    """Whether factors are these, in whatever order."""
    one, other = wanted
    return len(found) == _WHOLE and any(equal(a, one) and equal(b, other) for a, b in (found, found[::-1]))


def _divided(r: Rewriter, seen: Seen, powers: Seen, keys: Sequence[Index]) -> Seen | None:
    """dP of ``dP / S``."""
    op = r.maker(seen.value, "divide")
    if op is None or r.maker(powers.value, "exponential") is None:
        return None
    return unmoved(r, op.operands[0], seen.dims) if _is_sum(r, Seen(op.operands[1], seen.dims), powers, keys) else None


def _is_sum(r: Rewriter, wide: Seen, powers: Seen, keys: Sequence[Index]) -> bool:
    total = reduced(r, wide.value, wide.dims, keys, "add")
    return total is not None and equal(total, powers)


def _weighed(r: Rewriter, inner: Factors, powers: Seen, gradient: Seen, keys: Sequence[Index]) -> bool:
    """Whether factors are E, dP and ``1 / (S * S)``."""
    rest = [each for each in inner if not equal(each, powers) and not equal(each, gradient)]
    op = r.maker(rest[0].value, "divide") if len(inner) == _WHOLE + 1 and len(rest) == 1 else None
    if op is None or r.scalar_of(op.operands[0]) != 1:
        return False
    squares = _factors(r, Seen(op.operands[1], rest[0].dims))
    return len(squares) == _WHOLE and all(_is_sum(r, each, powers, keys) for each in squares)
