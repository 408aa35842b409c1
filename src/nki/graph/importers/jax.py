"""A function of JAX as a module of the graph compiler: traced, lowered for the device, and read as StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nki.graph.ir import Function, Module, Value
from nki.graph.read import read

PLATFORM = "neuron"
"""What JAX lowers for: kernels become the documented custom calls, everything else what JAX has for all platforms."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A traced function.

    Attributes:
        module: its operations; arguments have the names that JAX gives them.
        kept: which leaves of the arguments the module takes, in its order; JAX leaves unused ones out.
        inputs: shape and dtype of each leaf.
        outputs: shape and dtype of each leaf of the result.
        tree: of the result.
        donated: results, by position, that may take the memory of an argument of the module.
        text: what JAX wrote, with locations.
    """

    module: Module
    kept: tuple[int, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    tree: Any
    donated: dict[int, int]
    text: str


def lower(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, donate: Sequence[int], static: Any
) -> Lowered:
    """Trace a function for arguments of given shapes and dtypes; it does not run.

    Args:
        args, kwargs: arrays, trees of them, or `jax.ShapeDtypeStruct`.
        donate: positions of arguments whose memory results may take.
        static: positions and names of arguments that are constants: ``static_argnums`` and ``static_argnames``.
    """
    import jax

    jitted = jax.jit(function, donate_argnums=tuple(donate), static_argnums=static[0], static_argnames=static[1])
    traced = jitted.trace(*args, **kwargs)
    made = traced.lower(lowering_platforms=(PLATFORM,))
    text = made.as_text(debug_info=True)
    inputs = tuple(jax.tree.leaves(made.in_avals))
    kept = made._lowering.compile_args["kept_var_idx"]
    module = read(text)
    leaves, tree = jax.tree.flatten(made.out_info)
    results = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return Lowered(module, tuple(sorted(kept)), inputs, results, tree, _aliased(module.main), text)


def _aliased(main: Function) -> dict[int, int]:
    """Results and the donated arguments whose memory they take: those that JAX paired, then the first of equal type."""
    found: dict[int, int] = {}
    waiting: list[tuple[int, Value]] = []
    for number, attributes in enumerate(main.argument_attributes):
        result = attributes.get("tf.aliasing_output")
        if isinstance(result, int):
            found[result] = number
        elif attributes.get("jax.buffer_donor"):
            waiting.append((number, main.arguments[number]))
    for number, value in waiting:
        free = (i for i, result in enumerate(main.results) if i not in found and result.type == value.type)
        place = next(free, None)
        if place is not None:
            found[place] = number
    return found
