"""Functions that `jax.shard_map` divides over a mesh: one program, which is that of every rank, and what goes where.

JAX has traced what each device does of such a function, collectives included, and lowers it as the body of one
operation. That body is the program. Nothing is partitioned here. Rank r is device r of the mesh, in the order of
``mesh.devices.flat``, which is what JAX counts partitions in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from nki.graph.errors import GraphError

_MANUAL, _CONSTANT = "sdy.manual_computation", "stablehlo.constant"


@dataclass(frozen=True, slots=True)
class Shards:
    """How a function is divided.

    Attributes:
        ranks: devices of the mesh.
        inputs: for each leaf of the arguments, the part that each rank gets.
        outputs: for each leaf of the result, the part that each rank makes.
        shardings: of the leaves of the result, as JAX describes them.
    """

    ranks: int
    inputs: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]
    shardings: tuple[Any, ...]

    def parts(self, leaves: Sequence[np.ndarray], kept: Sequence[int]) -> list[list[np.ndarray]]:
        """What each rank gets of the leaves that the program takes."""
        return [
            [np.ascontiguousarray(leaf[self.inputs[place][rank]]) for leaf, place in zip(leaves, kept, strict=True)]
            for rank in range(self.ranks)
        ]

    def whole(self, made: Sequence[Sequence[np.ndarray]], leaves: Sequence[Any]) -> list[np.ndarray]:
        """The leaves of the result from those of all ranks; where several ranks make the same part, of the first."""
        results = [np.empty(leaf.shape, own.dtype) for leaf, own in zip(leaves, made[0], strict=True)]
        for rank in reversed(range(self.ranks)):
            for result, places, part in zip(results, self.outputs, made[rank], strict=True):
                result[places[rank]] = part
        return results


def shards_of(traced: Any, devices: int) -> Shards:
    """How a traced function is divided over devices, all of which is one call of `jax.shard_map`.

    Raises:
        GraphError: "graph.sharding": there is something outside of the call, or axes of the mesh are left to JAX.
    """
    jaxpr = traced.jaxpr.jaxpr
    calls = [each for each in jaxpr.eqns if each.primitive.name == "shard_map"]
    if not calls:
        raise _refused(
            f"the function, or an argument of it, is divided over {devices} devices of JAX without shard_map"
        )
    if len(jaxpr.eqns) != 1:
        others = sorted({each.primitive.name for each in jaxpr.eqns} - {"shard_map"})
        raise _refused(f"beside its shard_map, the function has {', '.join(others) or 'other shard_maps'}")
    (call,) = calls
    mesh = call.params["mesh"]
    left = sorted(set(mesh.axis_names) - set(call.params["newly_manual_axes"]))
    if left:
        raise _refused(f"shard_map leaves the axes {', '.join(left)} of the mesh to JAX")
    order = {variable: number for number, variable in enumerate(jaxpr.invars)}
    inputs: list[tuple[Any, ...]] = [()] * len(jaxpr.invars)
    for variable, spec in zip(call.invars, call.params["in_specs"], strict=True):
        if variable in order:
            inputs[order[variable]] = _places(mesh, spec, variable.aval.shape)
    results = {variable: number for number, variable in enumerate(call.outvars)}
    if [results.get(variable) for variable in jaxpr.outvars] != list(range(len(call.outvars))):
        raise _refused("the function returns other values than its shard_map, or in another order")
    outputs = [
        (_places(mesh, spec, variable.aval.shape), jax.sharding.NamedSharding(_concrete(mesh), spec))
        for variable, spec in zip(call.outvars, call.params["out_specs"], strict=True)
    ]
    return Shards(mesh.size, tuple(inputs), tuple(p for p, _ in outputs), tuple(s for _, s in outputs))


def _concrete(mesh: Any) -> Any:
    """A mesh of devices.

    Raises:
        GraphError: "graph.sharding" for an abstract one.
    """
    if not hasattr(mesh, "devices"):
        raise _refused("the mesh of shard_map is abstract")
    return mesh


def _places(mesh: Any, spec: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The part of an array that each device of a mesh has, as an index."""
    sharding = jax.sharding.NamedSharding(_concrete(mesh), spec)
    found = sharding.devices_indices_map(shape)
    return tuple(found[device] for device in mesh.devices.flat)


def take_body(module: Any) -> None:
    """Make the body of the only ``sdy.manual_computation`` the function ``main``.

    Args:
        module: of JAX's MLIR bindings; it is changed.

    Raises:
        GraphError: "graph.sharding" for a module of another form.
    """
    main = next(each for each in module.body.operations if each.operation.name == "func.func" and _is_main(each))
    block = main.operation.regions[0].blocks[0]
    manual = [each for each in block.operations if each.operation.name == _MANUAL]
    others = sorted({each.operation.name for each in block.operations} - {_MANUAL, _CONSTANT, "func.return"})
    if len(manual) != 1 or others:
        raise _refused(f"beside its shard_map, the function has {', '.join(others) or 'other shard_maps'}")
    operation = manual[0].operation
    body = operation.regions[0].blocks[0]
    _constants_inside(operation, block, body)
    if list(operation.operands)[-len(block.arguments) :] != list(block.arguments):
        raise _refused("its shard_map takes the arguments in another order")
    last = list(body.operations)[-1].operation
    results = list(last.operands)
    kinds = [argument.type for argument in body.arguments], [value.type for value in results]
    with module.context, main.operation.location, ir.InsertionPoint(main.operation):
        made = func.FuncOp("main", ir.FunctionType.get(*kinds), visibility="public")
    body.append_to(made.operation.regions[0])
    with module.context, last.location, ir.InsertionPoint(last):
        func.ReturnOp(results)
    last.erase()
    main.operation.erase()


def _constants_inside(operation: Any, block: Any, body: Any) -> None:
    """Repeat constants of a block in the body that takes them as its first arguments, where closures end up."""
    constants = {each.results[0]: each.operation for each in block.operations if each.operation.name == _CONSTANT}
    taken = [constants[value] for value in operation.operands if value in constants]
    with operation.context, ir.InsertionPoint.at_block_begin(body):
        for number, constant in enumerate(taken):
            if body.arguments[number].type != constant.results[0].type:
                raise _refused("a constant of the function is divided")
            body.arguments[number].replace_all_uses_with(constant.clone().results[0])
    for _ in taken:
        body.erase_argument(0)


def _is_main(function: Any) -> bool:
    return bool(str(function.operation.attributes["sym_name"]) == '"main"')


def _refused(problem: str) -> GraphError:
    return GraphError(
        "graph.sharding",
        problem,
        rule="of a function that is divided over devices, all is done inside of one shard_map over all axes of a mesh",
        fix="put all of the function into jax.shard_map(function, mesh=mesh, in_specs=..., out_specs=...)",
    )
