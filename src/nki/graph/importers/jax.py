"""A function of JAX as a module of the graph compiler: traced, lowered for the device, and read as StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from nki.graph.importers.jax_partition import partitioned
from nki.graph.importers.jax_shards import Shards, shards_of, take_body
from nki.graph.ir import Function, Module, Value
from nki.graph.stablehlo.read import read

_MESH, _CONSTRAINT = "sdy.mesh", "sdy.sharding_constraint"
"""What JAX writes about devices, also where there is one."""

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
        shards: how the function is divided over ranks, which all run the module; None for one rank.
    """

    module: Module
    kept: tuple[int, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    tree: Any
    donated: dict[int, int]
    text: str
    shards: Shards | None = None


def lower(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, donate: Sequence[int], static: Any
) -> Lowered:
    """Trace a function for arguments of given shapes and dtypes; it does not run.

    Args:
        args, kwargs: arrays, trees of them, or `jax.ShapeDtypeStruct`.
        donate: positions of arguments whose memory results may take.
        static: positions and names of arguments that are constants: ``static_argnums`` and ``static_argnames``.

    Raises:
        GraphError: "graph.sharding" for several devices over which XLA does not divide it, or what `read` raises.
    """
    jitted = jax.jit(function, donate_argnums=tuple(donate), static_argnums=static[0], static_argnames=static[1])
    traced = jitted.trace(*args, **kwargs)
    made = traced.lower(lowering_platforms=(PLATFORM,))
    on_device, shards = _on_one_device(made, traced)
    text = on_device.operation.get_asm(enable_debug_info=True)
    inputs = tuple(jax.tree.leaves(made.in_avals))
    kept = made._lowering.compile_args["kept_var_idx"]
    module = read(text)
    leaves, tree = jax.tree.flatten(made.out_info)
    results = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return Lowered(module, tuple(sorted(kept)), inputs, results, tree, _aliased(module.main), text, shards)


def _on_one_device(made: Any, traced: Any) -> tuple[Any, Shards | None]:
    """The program of one device, without what JAX says about places.

    Args:
        made: what JAX lowered; its module, which is one of JAX's MLIR bindings, is changed.
        traced: what it was lowered from.

    Returns:
        a module, and how the devices' parts belong together if there are several devices.

    Raises:
        GraphError: "graph.sharding" for a function that XLA does not divide.
    """
    module = made.compiler_ir()
    shards = None
    if module.operation.attributes["mhlo.num_partitions"].value > 1:
        shards = shards_of(traced)
        if shards is None or not take_body(module):
            module, shards = partitioned(made)
    for function in list(module.body.operations):
        if function.operation.name == _MESH:
            function.operation.erase()
        elif function.operation.name == "func.func":
            _without_places(function.operation)
    return module, shards


def _without_places(operation: Any) -> None:
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                if inner.operation.name == _CONSTRAINT:
                    inner.results[0].replace_all_uses_with(inner.operands[0])
                    inner.operation.erase()
                else:
                    _without_places(inner.operation)


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
