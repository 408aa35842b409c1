"""Functions that XLA divides over devices: what its partitioner makes of them is the program of every rank.

JAX hands XLA the whole function with shardings. XLA spreads these over all operations, makes the module of one device
with the collectives that it needs, and only then begins to optimise for a processor. Here it stops before that: it is
given no passes but the partitioner's, and a hook behind them takes the module. Nothing public does that, so this is the
only file that uses `jaxlib` itself. Another version of JAX may not have what it uses; then it says what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from nki.graph.errors import GraphError
from nki.graph.importers.jax_shards import Shards, main_of, parts_of

_PASSES = (
    "flatten-call-graph",
    "call-inliner",
    "zero_sized_hlo_elimination",
    "conditional-canonicalizer",
    "shardy-xla",
    "spmd-partitioning",
    "dce",
    "tuple-simplifier",
    "cse",
    "apply-xla-transforms",
)
"""All that XLA does: it spreads shardings, partitions, tidies up behind that, and calls the hook."""

_OPTIONS = {
    "xla_enable_hlo_passes_only": ",".join(_PASSES),
    "xla_enable_rgv3_materialization": False,  # ranks by number, not by axes of a mesh
}

_HOOK = 0  # of the two places where XLA has hooks, the first one
_COPY, _MESH = "mhlo.copy", "sdy.mesh"
_SPELLED = {"mhlo.erf": "chlo.erf", "mhlo.topk": "chlo.top_k"}
"""What HLO has operations for, and StableHLO has not; JAX wrote them like that before."""

_KEPT = ("tf.aliasing_output", "jax.buffer_donor")


class _Private(NamedTuple):
    """What this file uses of JAX that is not public."""

    register: Any
    clear: Any
    stablehlo: Any
    read: Any
    placed: Any
    specs: Any


_WHERE = _Private(
    register=("jaxlib._xla", "register_xla_transform"),
    clear=("jaxlib._xla", "clear_xla_transform"),
    stablehlo=("jaxlib._jax", "mlir.hlo_to_stablehlo"),
    read=("jaxlib._hlo", "HloModule.from_serialized_hlo_module_proto"),
    placed=("jax._src.sharding_impls", "GSPMDSharding"),
    specs=("jax._src.sharding_impls", "parse_flatten_op_sharding"),
)
_numbers = count()
"""Names of hooks in XLA, which has one table of them for the process."""


class _Taken(Exception):
    """Ends a compilation whose module was taken."""


def partitioned(made: Any) -> tuple[Any, Shards]:
    """What every device runs of a lowered function, as a module of JAX's bindings, and what goes where.

    Args:
        made: what ``jax.jit(...).trace(...).lower(...)`` returned.

    Raises:
        GraphError: "graph.sharding": XLA refuses the shardings, or this JAX does not hand out its module.
    """
    private, original = _private(), made.compiler_ir()
    taken = _taken(private, made, original)
    with original.context:
        module = ir.Module.parse(private.stablehlo(taken))
    _tidy(module, original)
    found, devices, main = private.read(taken), made._lowering._device_list, main_of(original)
    mesh, output = _mesh(original, devices), found.spmd_output_sharding
    read = partial(_placed, private, devices, mesh)
    inputs, _ = read(found.spmd_parameters_shardings or (), main.type.inputs)
    outputs, shardings = read(() if output is None else (output,), main.type.results)
    kept = sorted(made._lowering.compile_args["kept_var_idx"])
    places = dict(zip(kept, inputs, strict=True))
    every = tuple(places.get(number, ()) for number in range(max(kept, default=-1) + 1))
    return module, Shards(len(devices), every, outputs, shardings)


def _private() -> _Private:
    """What is needed of JAX.

    Raises:
        GraphError: "graph.sharding" with the names of what this version has not got.
    """
    found, missing = [], []
    for module, name in _WHERE:
        try:
            found.append(attrgetter(name)(import_module(module)))
        except (ImportError, AttributeError):
            missing.append(f"{module}.{name}")
    if missing:
        raise _refused(
            f"the function is divided otherwise than by one shard_map, and JAX {jax.__version__} does not have "
            f"{', '.join(missing)}, by which XLA's partitioned module is taken"
        )
    return _Private(*found)


def _taken(private: _Private, made: Any, original: Any) -> bytes:
    """The module that XLA's partitioner made, as it is serialised.

    Raises:
        GraphError: "graph.sharding": what XLA says against it, or that it never came to the hook.
    """
    name, attributes, seen = f"nki_divided_{next(_numbers)}", original.operation.attributes, list[bytes]()

    def take(serialised: bytes) -> None:
        if private.read(serialised).name == name:  # other threads compile as well
            seen.append(serialised)
            raise _Taken

    before, attributes["sym_name"] = attributes["sym_name"], ir.StringAttr.get(name, original.context)
    private.register(name, _HOOK, take)
    problem = "XLA compiles without its hooks"
    try:
        made.compile(compiler_options=_OPTIONS)
    except jax.errors.JaxRuntimeError as error:
        problem = f"XLA does not partition the function: {error}"
    finally:
        private.clear(name, _HOOK)
        attributes["sym_name"] = before
    if not seen:
        raise _refused(problem)
    return seen[0]


def _tidy(module: Any, original: Any) -> None:
    """Take out what only XLA wants to know, and bring back what JAX said of the module and of its arguments."""
    attributes = module.operation.attributes
    for name in [name for name in attributes if name.startswith("mhlo.")]:
        del attributes[name]
    for name in ("sym_name", "mhlo.num_partitions"):
        attributes[name] = original.operation.attributes[name]
    for function in list(module.body.operations):
        if function.operation.name == _MESH:
            function.operation.erase()
        else:
            _respell(function.operation)
    said = map(ir.DictAttr, main_of(original).arg_attrs)
    kept = [{name: each[name] for name in _KEPT if name in each} for each in said]
    with module.context:
        main_of(module).arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in kept])


def _respell(operation: Any) -> None:
    """Operations that only HLO has, in those that JAX writes."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in [each.operation for each in block.operations]:
                if inner.name == _COPY:
                    _replace(inner, list(inner.operands))
                elif inner.name in _SPELLED:
                    _replace(inner, list(_again(inner, _SPELLED[inner.name]).results))
                else:
                    _respell(inner)


def _again(operation: Any, name: str) -> Any:
    """The operation under another name; of its attributes only how many elements it takes counts."""
    kept = {key: operation.attributes[key] for key in ("k",) if key in operation.attributes}
    kinds = [result.type for result in operation.results]
    with operation.location, ir.InsertionPoint(operation):
        return ir.Operation.create(name, kinds, list(operation.operands), kept)


def _replace(operation: Any, values: Sequence[Any]) -> None:
    for result, value in zip(operation.results, values, strict=True):
        result.replace_all_uses_with(value)
    operation.erase()


def _placed(
    private: _Private, devices: Any, mesh: Any, found: Sequence[Any], kinds: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The parts of arguments or results that each device has, and their shardings.

    Args:
        found: what XLA says: a sharding for each, one for all that are alike, or none where nothing is divided.
    """
    flat = [leaf for each in found for leaf in (each.tuple_shardings or [each])]
    if len(flat) == 1:
        flat *= len(kinds)
    whole = private.placed.get_replicated(devices)
    shardings = [_sharding(private, each, devices, mesh) for each in flat] or [whole] * len(kinds)
    pairs = zip(shardings, kinds, strict=True)
    return tuple(parts_of(each, tuple(devices), tuple(kind.shape)) for each, kind in pairs), tuple(shardings)


def _sharding(private: _Private, found: Any, devices: Any, mesh: Any) -> Any:
    """By names of the mesh's axes where it is divided along whole ones."""
    if mesh is not None:
        try:
            return jax.sharding.NamedSharding(mesh, private.specs(found, mesh)[0])
        except (ValueError, NotImplementedError):
            pass  # XLA may divide along a part of an axis, which has no name; the sharding is the same in its own terms
    return private.placed(devices, found)


def _mesh(original: Any, devices: Any) -> Any:
    """The mesh that the function names, if it is one."""
    found = [each.operation for each in original.body.operations if each.operation.name == _MESH]
    named = [map(sdy.MeshAxisAttr, sdy.MeshAttr(each.attributes["mesh"]).axes) for each in found]
    axes = [[(axis.name, axis.size) for axis in each] for each in named]
    whole = [each for each in axes if np.prod([size for _, size in each]) == len(devices)]
    if not whole:
        return None
    names, sizes = zip(*whole[0], strict=True)
    return jax.sharding.Mesh(np.array(list(devices), object).reshape(sizes), names)


def _refused(problem: str) -> GraphError:
    return GraphError(
        "graph.sharding",
        problem,
        rule="a function over several devices is one jax.shard_map, or one that XLA divides",
        fix="put all of the function into jax.shard_map(function, mesh=mesh, in_specs=..., out_specs=...)",
    )
