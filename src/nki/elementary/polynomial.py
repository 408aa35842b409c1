"""Polynomials by Horner's rule: in float32 with one rounding for each coefficient, in float64 with two."""

from __future__ import annotations

from typing import Any

from nki.spec.arrays import Arrays


def polynomial(x: Arrays, coefficients: tuple[float, ...], a: Any) -> Any:
    """A polynomial in float32; the constant term comes first, and there are two coefficients at least."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = x.multiply_add(result, a, x.constant(coefficient))
    return result


def wide_polynomial(x: Arrays, coefficients: tuple[float, ...], a: Any) -> Any:
    """A polynomial in float64, which has no fused multiply-add; the coefficients are as of `polynomial`."""
    result = x.wide_add(x.wide_multiply(a, x.wide_constant(coefficients[-1])), x.wide_constant(coefficients[-2]))
    for coefficient in reversed(coefficients[:-2]):
        result = x.wide_add(x.wide_multiply(result, a), x.wide_constant(coefficient))
    return result
