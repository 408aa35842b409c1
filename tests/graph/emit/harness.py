"""Runs the kernels of groups on arrays, eagerly and compiled, and measures how far they are from a reference."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

import nki
from nki.core.dtypes import DType, as_dtype, bool_, from_numpy, uint8
from nki.core.source import UNKNOWN
from nki.graph.compile import compile_module
from nki.graph.emit import EMITTERS
from nki.graph.ir import Group, Op, TensorType, Value
from nki.graph.kernels import compile_function
from nki.options import from_environment
from nki.target.load import load_target
from tests.graph import xla

Array = np.ndarray[Any, Any]


def value(shape: Sequence[int], dtype: Any, name: str = "") -> Value:
    """A tensor of a group."""
    return Value(TensorType(tuple(shape), as_dtype(dtype)), name)


def like(array: Array) -> Value:
    """A value for an array."""
    return value(array.shape, from_numpy(array.dtype))


def op(name: str, operands: Sequence[Value], shape: Sequence[int], dtype: Any, **attributes: Any) -> Op:
    """An operation with one result."""
    return Op(name, tuple(operands), (value(shape, dtype),), attributes)


def constant(array: Any) -> Op:
    """A constant."""
    held = np.asarray(array)
    return op("constant", (), held.shape, from_numpy(held.dtype), value=held)


def group(kind: str, ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value] | None = None) -> Group:
    """A group; by default the last operation gives its outputs."""
    return Group(kind, tuple(ops), tuple(inputs), tuple(outputs if outputs is not None else ops[-1].results))


_COUNT = itertools.count()


def _distinct(kernel: Callable[..., None], number: int) -> Callable[..., None]:
    """A function of its own: the cache of compiled kernels takes closures made by the package for the same."""

    def numbered(*tensors: Any) -> None:
        assert number >= 0
        kernel(*tensors)

    return numbered


@contextmanager
def _on(target: str) -> Iterator[None]:
    old = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE")
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = target
    try:
        yield
    finally:
        if old is None:
            del os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"]
        else:
            os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = old


def run(made: Group, inputs: Sequence[Array], *, target: str = "trn2", compiled: bool = False) -> list[Array]:
    """The outputs of a group's kernel for arrays.

    Args:
        compiled: through all passes, else instruction by instruction.
    """
    kernel = EMITTERS[made.kind](made, load_target(target))
    arrays = [_memory(array) for array in inputs]
    outputs = [np.zeros(v.type.shape or (1,), _stored(v.type.dtype).numpy) for v in made.outputs]
    with _on(target), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (nki.jit(_distinct(kernel, next(_COUNT))) if compiled else nki.simulate(kernel))(*arrays, *outputs)
    shaped = [out.reshape(v.type.shape) for out, v in zip(outputs, made.outputs, strict=True)]
    return [out.astype(np.bool_) if v.type.dtype == bool_ else out for out, v in zip(shaped, made.outputs, strict=True)]


def run_both(made: Group, inputs: Sequence[Array], target: str = "trn2") -> list[Array]:
    """The outputs, the same from both ways of running."""
    eager = run(made, inputs, target=target)
    for one, other in zip(eager, run(made, inputs, target=target, compiled=True), strict=True):
        assert one.tobytes() == other.tobytes(), "eager and compiled results differ"
    return eager


def instructions(made: Group, target: str = "trn2") -> list[str]:
    """The names of the compiled kernel's instructions."""
    chosen = load_target(target)
    types = [v.type for v in (*made.inputs, *made.outputs)]
    kernel = EMITTERS[made.kind](made, chosen)
    program = compile_function("counted", kernel, types, UNKNOWN, chosen, from_environment())[0]
    return [issued.instruction.name for issued in program.body.walk()]


def _stored(dtype: DType) -> DType:
    return uint8 if dtype == bool_ else dtype


def _memory(array: Array) -> Array:
    stored = array.astype(np.uint8) if array.dtype == np.bool_ else array
    return np.ascontiguousarray(stored).reshape(array.shape or (1,)).copy()


def ulps(actual: Array, expected: Array) -> float:
    """The largest distance in units of the last place of the expected numbers; inf where NaN meets a number.

    Subnormal numbers count as 0, as both sides may flush them.
    """
    if actual.size == 0:
        return 0.0
    kind = expected.dtype
    bits, least = _FORMATS[kind.name]
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    tiny = 2.0**least
    a, b = (np.where(np.abs(t) < tiny, 0.0, t) for t in (a, b))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(b), tiny))) - bits)
        distance = np.where(same, 0.0, np.abs(a - b) / unit)
    return float(np.max(np.where(np.isnan(distance), np.inf, distance)))


_FORMATS = {
    "float32": (23, -126),
    "bfloat16": (7, -126),
    "float16": (10, -14),
    "float8_e4m3": (3, -6),
    "float8_e4m3fn": (3, -6),
    "float8_e5m2": (2, -14),
}


def by_xla(reference: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX by XLA's CPU compiler, quickly: it runs once."""
    return jax.jit(reference, compiler_options=xla.QUICK)


def check(
    made: Group,
    inputs: Sequence[Array],
    reference: Callable[..., Any],
    *,
    tolerance: float | Sequence[float] = 0.0,
    absolute: float | Sequence[float] = 0.0,
    target: str = "trn2",
    compiled: bool = True,
) -> float:
    """Compare a group with a reference, and return the largest error in ulps.

    Args:
        reference: of the inputs; gives an array, or one for each output.
        tolerance: ulps that are allowed to floats, perhaps for each output; integers agree exactly.
        absolute: difference that is allowed in any case, likewise.
    """
    found = run_both(made, inputs, target) if compiled else run(made, inputs, target=target)
    given = reference(*inputs)
    expected = [np.asarray(e) for e in (given if isinstance(given, tuple | list) else [given])]
    limits = [tolerance] * len(found) if isinstance(tolerance, float | int) else list(tolerance)
    margins = [absolute] * len(found) if isinstance(absolute, float | int) else list(absolute)
    errors = [
        _compared(f"output {at}", inputs, *each)
        for at, each in enumerate(zip(found, expected, limits, margins, strict=True))
    ]
    return max(errors)


def _compared(
    name: str, inputs: Sequence[Array], mine: Array, theirs: Array, tolerance: float, absolute: float
) -> float:
    assert mine.shape == theirs.shape, f"{name}: {mine.shape} instead of {theirs.shape}"
    assert mine.dtype == theirs.dtype, f"{name}: {mine.dtype} instead of {theirs.dtype}"
    if theirs.dtype.kind in "iub":
        wrong = np.argwhere(mine != theirs)
        assert not len(wrong), f"{name}: " + _shown(wrong[0], inputs, mine, theirs, len(wrong))
        return 0.0
    with np.errstate(all="ignore"):
        near = np.abs(mine.astype(np.float64) - theirs.astype(np.float64)) <= absolute
    mine = np.where(near, theirs, mine)
    error = ulps(mine, theirs)
    if error > tolerance:
        each = np.array([ulps(m[None], t[None]) for m, t in zip(mine.ravel(), theirs.ravel(), strict=True)])
        at = np.array(np.unravel_index(int(np.argmax(each)), mine.shape))
        count = int((each > tolerance).sum())
        raise AssertionError(f"{name}: {error} ulps, " + _shown(at, inputs, mine, theirs, count))
    return error


def _shown(at: Array, inputs: Sequence[Array], mine: Array, theirs: Array, count: int) -> str:
    where = tuple(int(i) for i in at)
    given = [a[where] if a.shape == mine.shape else a.shape for a in inputs]
    return f"{count} wrong; at {where} {mine[where]!r} instead of {theirs[where]!r}, inputs {given}"


def check_function(function: Callable[..., Any], inputs: Sequence[Array], error: float, target: str = "trn2") -> float:
    """Compare a JAX function, compiled as a model with all its groups, with XLA's CPU compiler.

    Args:
        error: allowed for floats: the difference, relative to ``1 + |expected|``.

    Returns:
        The largest error.
    """
    jitted = by_xla(function)
    executable = compile_module(jitted.lower(*inputs).as_text(), target=target)
    worst = 0.0
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jitted(*inputs))]
    for mine, theirs in zip(executable.run([np.asarray(i) for i in inputs]), leaves, strict=True):
        mine = np.asarray(mine).reshape(theirs.shape)
        if theirs.dtype.kind in "iub":
            assert np.array_equal(mine, theirs)
            continue
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        assert np.array_equal(np.isnan(a), np.isnan(b))
        with np.errstate(invalid="ignore"):
            distance = np.where((a == b) | np.isnan(b), 0.0, np.abs(a - b) / (1 + np.abs(b)))
        worst = max(worst, float(distance.max(initial=0.0)))
    assert worst <= error, f"error {worst}"
    return worst
