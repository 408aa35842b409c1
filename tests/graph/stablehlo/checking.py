"""Runs a case on the simulated device and by JAX's compiler for the host, and says how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import enable_x64

from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.ir import Module, Op
from nki.graph.stablehlo.read import read
from nki.options import from_environment
from tests.graph import xla
from tests.graph.stablehlo.draw import Array, Case, is_float

_FILE = "model.mlir"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        status: "right", "wrong" or "refused".
        ulps: largest error of floats in units of the last place, where the case allows no error relative to the result.
        absolute, relative: largest errors of floats; relative to the largest magnitude of the result.
        why: what is wrong, or the reason of the refusal.
    """

    status: str
    ulps: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    why: str = ""


def check(case: Case, target: str = "trn2", constant: bool = False) -> Outcome:
    """Compile, run and compare.

    Args:
        constant: whether the inputs are constants of the model, which the compiler then may compute itself.
    """
    try:
        module = read(case.text, _FILE)
        if constant:
            _bind(module, case.inputs)
        executable = compile_module(module, target=target, options=from_environment())
    except GraphError as error:
        return _refusal(error, case.text)
    except (NkiError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError) as error:
        return Outcome("wrong", why=f"compiling raises {type(error).__name__}: {error}")
    try:
        found = executable.run([] if constant else list(case.inputs))
    except (NkiError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError) as error:
        return Outcome("wrong", why=f"running raises {type(error).__name__}: {error}")
    if case.judge is not None:
        why = case.judge(case.inputs, found)
        return Outcome("wrong" if why else "right", why=why)
    return _compared(case, found)


def _bind(module: Module, inputs: Sequence[Array]) -> None:
    main = module.main
    main.body[:0] = [
        Op("constant", (), (value,), {"value": array.reshape(value.type.shape)})
        for value, array in zip(main.arguments, inputs, strict=True)
    ]
    main.arguments, main.argument_attributes = (), ()


def _refusal(error: GraphError, text: str) -> Outcome:
    """Refusals name the operation, its types and the model's line."""
    why = error.message
    name = why.partition("(")[0]
    names = {name, f"stablehlo.{name}", f"func.{name}"}
    if not error.location.frames:
        return Outcome("wrong", why=f"refused without the model's line: {why}")
    if "tensor<" not in why or not any(
        f" {each}" in text.replace('"', "") for each in names if "." in each or each == "call"
    ):
        return Outcome("wrong", why=f"refused without operation and type: {why}")
    return Outcome("refused", why=why.partition(": ")[2])


def _compared(case: Case, found: Sequence[Array]) -> Outcome:
    expected = xla.run(case.text, case.inputs)
    if len(found) != len(expected):
        return Outcome("wrong", why=f"{len(found)} results instead of {len(expected)}")
    others: list[Sequence[Array]] | None = None
    total = Outcome("right")
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        outcome = compare(mine, [theirs], case)
        if outcome.status == "wrong":
            others = _others(case, expected) if others is None else others
            outcome = compare(mine, [theirs, *(other[number] for other in others)], case)
        if outcome.status == "wrong":
            return Outcome(*_worst(total, outcome, "wrong"), why=f"result {number}: {outcome.why}")
        total = Outcome(*_worst(total, outcome, "right"))
    return total


def _others(case: Case, expected: Sequence[Array]) -> list[Sequence[Array]]:
    """More references for floats: subnormal inputs as zeros, and what JAX computes in 64 bits."""
    if not any(is_float(array.dtype) for array in case.inputs):
        return []
    found: list[Sequence[Array]] = []
    if any(_has_subnormal(array) for array in case.inputs):
        found.append(xla.run(case.text, [_flushed(array) for array in case.inputs]))
    if case.exact is not None:
        wide = [array.astype(np.float64) if is_float(array.dtype) else array for array in case.inputs]
        with enable_x64(True), np.errstate(all="ignore"):
            leaves = jax.tree_util.tree_leaves(jax.jit(case.exact)(*wide))
            found.append([np.asarray(x).astype(like.dtype) for x, like in zip(leaves, expected, strict=True)])
    return found


def _worst(one: Outcome, other: Outcome, status: str) -> tuple[str, float, float, float]:
    return (
        status,
        max(one.ulps, other.ulps),
        max(one.absolute, other.absolute),
        max(one.relative, other.relative),
    )


def _has_subnormal(array: Array) -> bool:
    return is_float(array.dtype) and bool(np.any(_flushed(array) != array))


def _flushed(array: Array) -> Array:
    """Subnormal numbers as zeros of their sign, as the device may take them."""
    if not is_float(array.dtype):
        return array
    least = ml_dtypes.finfo(array.dtype).smallest_normal
    with np.errstate(invalid="ignore"):
        small = np.abs(array) < least
    return np.where(small, np.copysign(np.zeros_like(array), array), array).astype(array.dtype)


def compare(mine: Array, references: Sequence[Array], case: Case) -> Outcome:
    """An array against references of which each element must be near one."""
    theirs = references[0]
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return Outcome("wrong", why=f"{mine.dtype}{mine.shape} instead of {theirs.dtype}{theirs.shape}")
    if not theirs.size:
        return Outcome("right")
    if not is_float(theirs.dtype):
        wrong = np.logical_and.reduce([mine != reference for reference in references])
        return Outcome("wrong", why=_shown(wrong, mine, theirs)) if wrong.any() else Outcome("right")
    distances = [_distance(mine, reference, case.signs) for reference in references]
    units = np.minimum.reduce([distance[0] for distance in distances])
    absolute = np.minimum.reduce([distance[1] for distance in distances])
    finite = np.abs(theirs.astype(np.float64))
    scale = float(np.max(np.where(np.isfinite(finite), finite, 0.0)))
    wrong = (units > case.ulps) & ~(absolute <= case.scaled * scale)
    largest = float(np.max(np.where(np.isfinite(absolute), absolute, 0.0)))
    counted = np.where(np.isfinite(units) & ~(absolute <= case.scaled * scale), units, 0.0)
    values = float(np.max(counted)), largest, largest / scale if scale else 0.0
    if wrong.any():
        return Outcome("wrong", *values, _shown(wrong, mine, theirs))
    return Outcome("right", *values)


def _distance(mine: Array, theirs: Array, signed: bool) -> tuple[Array, Array]:
    """Units in the last place, and absolute; infinite where NaN or an infinity meets something else.

    Zeros differ by their sign where that counts. Subnormal results count as zeros of either sign.
    """
    info = ml_dtypes.finfo(theirs.dtype)
    least = float(info.smallest_normal)
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    subnormal = ((np.abs(a) < least) & (a != 0)) | ((np.abs(b) < least) & (b != 0))
    a, b = (np.where(np.abs(x) < least, np.copysign(0.0, x), x) for x in (a, b))
    same = ((a == b) & ((np.signbit(a) == np.signbit(b)) | subnormal | (a != 0))) | (np.isnan(a) & np.isnan(b))
    same |= (a == b) & (not signed)
    with np.errstate(all="ignore"):
        unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(b), least))) - info.nmant)
        absolute = np.where(same, 0.0, np.abs(a - b))
        units = absolute / unit
    signs = (a == 0) & (b == 0) & ~same & signed
    bad = ~same & (np.isnan(absolute) | signs)
    return np.where(bad, np.inf, units), np.where(bad, np.inf, absolute)


def _shown(wrong: Any, mine: Array, theirs: Array) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {mine.size} differ; at {at} {mine[at]!r} instead of {theirs[at]!r}"
