"""Functions that `jax.shard_map` divides over a mesh: one program, which is that of every rank, and what goes where.

JAX has traced what each device does of such a function, collectives included, and lowers it as the body of one
operation. That body is the program. Rank r is device r of the mesh, in the order of
``mesh.devices.flat``, which is what JAX counts partitions in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func
from jax.sharding import NamedSharding

_MANUAL, _CONSTANT = "sdy.manual_computation", "stablehlo.constant"
_AROUND = (_MANUAL, _CONSTANT, "func.return")


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
            [np.asarray(leaf[self.inputs[place][rank]], order="C") for leaf, place in zip(leaves, kept, strict=True)]
            for rank in range(self.ranks)
        ]

    def whole(self, made: Sequence[Sequence[np.ndarray]], leaves: Sequence[Any]) -> list[np.ndarray]:
        """The leaves of the result from those of all ranks; where several ranks make the same part, of the first.

        Keys and complex numbers have a last dimension of the numbers that they are made of.
        """
        results = [
            np.empty((*leaf.shape, *own.shape[len(leaf.shape) :]), own.dtype)
            for leaf, own in zip(leaves, made[0], strict=True)
        ]
        for rank in reversed(range(self.ranks)):
            for result, places, part in zip(results, self.outputs, made[rank], strict=True):
                result[places[rank]] = part
        return results


def shards_of(traced: Any) -> Shards | None:
    """How a traced function is divided, all of which is one call of `jax.shard_map`.

    Returns:
        None if it is another one: something is outside of the call, or axes of the mesh are left to JAX.
    """
    jaxpr = traced.jaxpr.jaxpr
    if [each.primitive.name for each in jaxpr.eqns] != ["shard_map"]:
        return None
    (call,) = jaxpr.eqns
    mesh = call.params["mesh"]
    if not hasattr(mesh, "devices") or set(mesh.axis_names) != set(call.params["newly_manual_axes"]):
        return None
    order = {variable: number for number, variable in enumerate(jaxpr.invars)}
    results = {variable: number for number, variable in enumerate(call.outvars)}
    if [results.get(variable) for variable in jaxpr.outvars] != list(range(len(call.outvars))):
        return None
    devices = tuple(mesh.devices.flat)
    inputs: list[tuple[Any, ...]] = [()] * len(jaxpr.invars)
    for variable, spec in zip(call.invars, call.params["in_specs"], strict=True):
        if variable in order:
            inputs[order[variable]] = parts_of(NamedSharding(mesh, spec), devices, variable.aval.shape)
    shardings = tuple(NamedSharding(mesh, spec) for spec in call.params["out_specs"])
    outputs = [
        parts_of(sharding, devices, variable.aval.shape)
        for sharding, variable in zip(shardings, call.outvars, strict=True)
    ]
    return Shards(mesh.size, tuple(inputs), tuple(outputs), shardings)


def parts_of(sharding: Any, devices: Sequence[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The part of an array that each device has, as an index."""
    found = sharding.devices_indices_map(shape)
    return tuple(found[device] for device in devices)


def take_body(module: Any) -> bool:
    """Make the body of the only ``sdy.manual_computation`` the function ``main``.

    Args:
        module: of JAX's MLIR bindings; it is changed.

    Returns:
        whether the module is nothing else; if not, it stays as it was.
    """
    main = main_of(module)
    block = main.operation.regions[0].blocks[0]
    manual = [each.operation for each in block.operations if each.operation.name == _MANUAL]
    if len(manual) != 1 or any(each.operation.name not in _AROUND for each in block.operations):
        return False
    (operation,) = manual
    body = operation.regions[0].blocks[0]
    constants = _constants_of(operation, block, body)
    if constants is None:
        return False
    _put_inside(constants, body)
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
    return True


def _constants_of(operation: Any, block: Any, body: Any) -> list[Any] | None:
    """Constants that a computation takes as its first operands, where closures end up, before the arguments of all.

    Returns:
        None if it takes something else, or a part of a constant.
    """
    made = {each.results[0]: each.operation for each in block.operations if each.operation.name == _CONSTANT}
    taken = [made[value] for value in operation.operands if value in made]
    if list(operation.operands) != [*(each.results[0] for each in taken), *block.arguments]:
        return None
    whole = all(body.arguments[number].type == constant.results[0].type for number, constant in enumerate(taken))
    return taken if whole else None


def _put_inside(constants: Sequence[Any], body: Any) -> None:
    """Repeat constants in the body that takes them as its first arguments."""
    for number, constant in enumerate(constants):
        with constant.context, ir.InsertionPoint.at_block_begin(body):
            body.arguments[number].replace_all_uses_with(constant.clone().results[0])
    for _ in constants:
        body.erase_argument(0)


def main_of(module: Any) -> Any:
    """The function that runs, of a module of JAX's bindings."""
    return next(each for each in module.body.operations if each.operation.name == "func.func" and _is_main(each))


def _is_main(function: Any) -> bool:
    return bool(str(function.operation.attributes["sym_name"]) == '"main"')
