"""Parts of a model that registered kernels compute instead, and how such a part is recognised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki.core.dtypes import bool_
from nki.core.locks import lock
from nki.driver.compile import compile_kernel
from nki.driver.launch import bound_arguments, launch_options
from nki.graph.errors import GraphError
from nki.graph.ir import Module, Op, TensorType, Value
from nki.graph.passes.context import Context
from nki.graph.passes.kinds import combiner
from nki.graph.passes.lossless import computed_alike
from nki.graph.passes.rewriter import Rewriter, rewrite
from nki.graph.references import TARGET, Reference, register
from nki.jit import Kernel


@dataclass(frozen=True, slots=True)
class Match:
    """A part of a model that a kernel can compute.

    Attributes:
        inputs: the kernel's tensors, in order.
        outputs: values of the model that the kernel returns, in order: results of the operation that was looked at.
        facts: further arguments of the kernel by name: numbers, truth values and strings.
        finish: makes values of the outputs' types of what the kernel returns, where that has other shapes.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[Rewriter, Sequence[Value]], Sequence[Value]] | None = None


Matcher = Callable[[Rewriter, Op], "Match | None"]
"""Looks at an operation and, through `Rewriter.maker`, at what makes its operands. It may add operations, such as
transposes of the inputs."""

_LOCK = lock()
_REGISTERED: dict[str, tuple[Matcher, Kernel]] = {}
_BUILT_IN: dict[str, tuple[Matcher, Kernel]] = {}
"""Kernels of this package; the user's come first."""


def register_pattern(name: str, match: Matcher, kernel: Kernel) -> None:
    """Let a kernel compute every part of a model that `match` finds; another pattern of that name is replaced.

    ``compile_module(..., patterns=frozenset())`` switches all patterns off, and a set of names all others. The report
    of the executable lists what was replaced.
    """
    with _LOCK:
        _REGISTERED[name] = (match, kernel)


def built_in(name: str, match: Matcher, kernel: Kernel) -> None:
    """As `register_pattern`, for a kernel of this package: it is used where no registered one is."""
    with _LOCK:
        _BUILT_IN[name] = (match, kernel)


def unregister_pattern(name: str) -> None:
    """Forget a pattern; nothing happens if there is none of that name."""
    with _LOCK:
        _REGISTERED.pop(name, None)


def pattern_names() -> frozenset[str]:
    """Of all patterns that are known now."""
    with _LOCK:
        return frozenset((*_REGISTERED, *_BUILT_IN))


def patterns(module: Module, context: Context) -> Module:
    """The model with custom calls in place of what registered kernels compute; patterns in the order of registration.

    Raises:
        GraphError: "graph.pattern" for a kernel that returns something else than what it replaces.
        NkiError: what compiling the kernel raises.
    """
    with _LOCK:
        wanted = [
            (name, *found)
            for name, found in (*_REGISTERED.items(), *_BUILT_IN.items())
            if context.patterns is None or name in context.patterns
        ]

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        for name, match, kernel in wanted:
            found = match(r, op)
            if found is not None:
                context.replaced.append((name, str(op.location)))
                return _called(r, op, found, kernel, name, context)
        return None

    return rewrite(module, rule) if wanted else module


def _called(r: Rewriter, op: Op, found: Match, kernel: Kernel, name: str, context: Context) -> tuple[Value, ...]:
    reference = _compiled(found, kernel, context)
    made = [TensorType(tuple(buffer.shape), buffer.dtype) for buffer in reference.programs[0].outputs]
    types = [value.type for value in found.outputs]
    if found.finish is None:
        same = [(kind.shape, kind.dtype) for kind in made] == [(kind.shape or (1,), kind.dtype) for kind in types]
        made = types if same else made
    config = {"func_name": reference.name, "klir_binary": {"binary": reference.key}}
    values: Sequence[Value] = r.op(
        "custom_call", found.inputs, made, {"call_target_name": TARGET, "backend_config": config}
    )
    values = values if found.finish is None else found.finish(r, values)
    if found.outputs != op.results or [value.type for value in values] != types:
        returned = ", ".join(f"{kind.dtype}{list(kind.shape)}" for kind in made)
        raise GraphError(
            "graph.pattern",
            f"the kernel of pattern {name!r} returns {returned} for {', '.join(map(str, types))}",
            rule="a registered kernel returns what it replaces: same shapes, same dtypes, all results of the operation",
            fix="let the pattern match only what the kernel can compute",
            location=op.location,
        )
    return tuple(values)


def _compiled(found: Match, kernel: Kernel, context: Context) -> Reference:
    arrays = tuple(_stand_in(value) for value in found.inputs)
    launch = kernel.launch()
    arguments = bound_arguments(launch, arrays, dict(found.facts))
    made = compile_kernel(launch, arguments, context.target, launch_options(launch, context.options), {})
    reference = register(made.kernel_hash, kernel.func.__name__, made.programs)
    context.references.append(reference)
    return reference


def _stand_in(value: Value) -> Any:
    """An array of the value's type without memory of its own: kernels are traced for shapes and dtypes."""
    stored = np.dtype(np.uint8) if value.type.dtype is bool_ else value.type.dtype.numpy
    return np.broadcast_to(np.zeros((), stored), value.type.shape or (1,))


# ---------------------------------------------------------------------------------------------------------- recognition


def either_way(r: Rewriter, op: Op, name: str) -> list[tuple[Op, Value]]:
    """Operands of a commutative operation that are made by another one, each with the operand beside it."""
    pairs = ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0]))
    return [(maker, other) for value, other in pairs if (maker := r.maker(value, name)) is not None]


def unconverted(r: Rewriter, value: Value) -> Value:
    """The value before conversions to a wider float type, or from float32 to bfloat16 or float16."""
    while (op := r.maker(value, "convert")) is not None and _is_unrounded(op):
        value = op.operands[0]
    return value


def _is_unrounded(convert: Op) -> bool:
    source = convert.operands[0].type.dtype
    return source.is_float and computed_alike(source, convert.results[0].type.dtype)


def match_rms_norm(r: Rewriter, op: Op) -> Match | None:
    """``x * rsqrt(mean(x * x, -1) + epsilon) * weight`` over the last dimension.

    Inputs x and weight; facts ``epsilon``.
    """
    if op.name != "multiply":
        return None
    last = len(op.results[0].type.shape) - 1
    for weight, normal in either_way(r, op, "broadcast_in_dim"):
        inner = r.maker(unconverted(r, normal), "multiply")
        if inner is None or tuple(weight.attributes["broadcast_dimensions"]) != (last,):
            continue
        for scale, wide in either_way(r, inner, "broadcast_in_dim"):
            row = _row(r, scale)
            root = None if row is None else r.maker(row, "rsqrt")
            epsilon = None if root is None else _mean_square(r, root.operands[0], wide)
            x = unconverted(r, wide)
            if epsilon is not None and x.type.dtype is op.results[0].type.dtype:
                return Match((x, weight.operands[0]), op.results, {"epsilon": epsilon})
    return None


def _row(r: Rewriter, wide: Op) -> Value | None:
    """What a broadcast repeats along its last dimension, also if dimensions of size 1 were dropped before."""
    shape, places = wide.results[0].type.shape, tuple(wide.attributes["broadcast_dimensions"])
    value, last = wide.operands[0], len(shape) - 1
    if places == tuple(range(last)) and value.type.shape == shape[:last]:
        return value
    reshape = r.maker(value, "reshape")
    dropped = [size for place, size in enumerate(shape[:last]) if place not in places]
    if reshape is None or places != tuple(sorted(places)) or last in places or any(size != 1 for size in dropped):
        return None
    source = reshape.operands[0]
    same = value.type.shape == tuple(shape[place] for place in places)
    return source if same and source.type.shape == shape[:last] else None


def _mean_square(r: Rewriter, value: Value, x: Value) -> float | None:
    """The number that is added to the mean of squares over the last dimension, if the value is that."""
    total = r.maker(value, "add")
    if total is None:
        return None
    for mean, number in ((total.operands[0], total.operands[1]), (total.operands[1], total.operands[0])):
        epsilon, scaled = r.scalar_of(number), r.maker(mean)
        if epsilon is None or scaled is None or scaled.name not in ("multiply", "divide"):
            continue
        count, factor = x.type.shape[-1], r.scalar_of(scaled.operands[1])
        wanted = count if scaled.name == "divide" else 1 / count
        reduce, last = r.maker(scaled.operands[0], "reduce"), (len(x.type.shape) - 1,)
        if factor is None or not np.isclose(float(factor), wanted, rtol=1e-6) or reduce is None:
            continue
        square = r.maker(reduce.operands[0], "multiply")
        if combiner(reduce) == "add" and tuple(reduce.attributes["dimensions"]) == last and square is not None:
            return float(epsilon) if square.operands == (x, x) else None
    return None
