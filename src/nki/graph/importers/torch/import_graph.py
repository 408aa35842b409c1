"""A traced graph of PyTorch, in core ATen operators, as a module of the graph compiler."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from nki.core.dtypes import uint8, uint32
from nki.core.source import UNKNOWN, Location
from nki.graph.errors import GraphError
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters import (
    bits,
    collectives,
    complex,
    convolution,
    creation,
    gamma,
    indexing,
    logic,
    normalization,
    numbers,
    pointwise,
    pooling,
    prims,
    products,
    reductions,
    resize,
    scans,
    search,
    shape,
    sorting,
    strided,
)
from nki.graph.importers.torch.converters import random as torch_random
from nki.graph.importers.torch.converters.control_flow import CONTROL
from nki.graph.importers.torch.converters.random import STATE_BYTES, is_state, threefry
from nki.graph.importers.torch.location import location_of
from nki.graph.importers.torch.reasons import reason_of
from nki.graph.importers.torch.table import CONVERTERS, Call, Converter
from nki.graph.importers.torch.types import device_dtype, host_array, narrowed, number, tensor_type
from nki.graph.importers.torch.wide_constants import Known, attribute
from nki.graph.ir import Function, Module, Op, TensorType, Value

FAMILIES = (
    bits, collectives, complex, convolution, creation, gamma, indexing, logic, normalization,
    numbers, sorting, pointwise, pooling, prims, products, torch_random, reductions,
    resize, scans, search, shape, strided,
)  # fmt: skip
"""The modules whose converters are in the table."""


def converters() -> Mapping[str, Converter]:
    """All converters by the names of their operators: the modules of `FAMILIES` have entered theirs."""
    return CONVERTERS


SEED = "random_seed"
"""Name of the last argument of a model with random numbers: two uint32 words, others in each run."""

_CHECKS = frozenset(
    ("aten._assert_async.msg", "aten._assert_async.default", "aten._assert_scalar.default",
     "aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default",
     "aten.sym_constrain_range_for_size.default")
)  # fmt: skip
"""Checks of the host, which have no result."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A result of a graph that is a tensor: the module's result of this number, as PyTorch expects it."""

    number: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Imported:
    """A module, and how its arguments and results belong to those of the graph.

    Attributes:
        inputs: which arguments of the graph are the module's, in its order; those that nothing uses are left out.
        outputs: for each result of the graph which of the module's it is, or a constant.
        random: whether the module has one more argument, `SEED`.
        notes: what was changed at the boundary, in words.
    """

    module: Module
    inputs: tuple[int, ...]
    outputs: tuple[Returned | Any, ...]
    random: bool
    notes: tuple[str, ...]


@dataclass(slots=True)
class ImportState:
    """What is known while a graph is walked; `made` is by node: a value, several, or a number."""

    builder: Builder
    converters: Mapping[str, Converter]
    attributes: fx.GraphModule
    made: dict[fx.Node, Any] = field(default_factory=dict)
    known: Known = field(init=False)
    seed: Value = field(default_factory=lambda: Value(TensorType((2,), uint32), SEED))
    keys: int = 0

    def __post_init__(self) -> None:
        self.known = Known(self.attributes)

    def needs(self, nodes: Iterable[Any]) -> None:
        """Makes those of these nodes that are constants computed with 64 bits."""
        for node in nodes:
            if isinstance(node, fx.Node) and node not in self.made and self.known.is_wide(node):
                self.made[node] = self.known.constant(self.builder, node)


def import_graph(
    graph: fx.GraphModule, names: Sequence[str] = (), more: Mapping[str, Converter] | None = None, entry: str = "main"
) -> Imported:
    """Convert a graph.

    Args:
        graph: functional, in core ATen operators, whose nodes have values of fixed sizes in ``meta["val"]``.
        names: of its arguments, for reports.
        more: converters for operators that are not ATen's, by name.
        entry: name of the function.

    Raises:
        GraphError: "graph.unsupported" for an operator without a converter, or a case that its converter lacks;
            "graph.dtype" and "graph.dynamic-shape" for tensors that the device cannot hold.
    """
    state = ImportState(Builder(), {**CONVERTERS, **(more or {})}, graph)
    arguments: list[Value] = []
    inputs: list[int] = []
    notes: dict[str, None] = {}
    holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for place, node in enumerate(holders):
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            state.made[node] = plain(fake, location_of(node))
        elif node.users:
            kind = TensorType((STATE_BYTES,), uint8) if is_state(node) else tensor_type(fake, location_of(node))
            value = Value(kind, names[place] if place < len(names) else node.name)
            state.made[node] = value
            arguments.append(value)
            inputs.append(place)
            _note(notes, fake.dtype)
    outputs: Sequence[Any] = ()
    for node in graph.graph.nodes:
        if node.op == "output":
            outputs = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
        elif node.op != "placeholder":
            convert(state, node)
    results, kinds = _results(state, outputs)
    if state.keys:
        arguments.append(state.seed)
    main = Function(entry, tuple(arguments), list(state.builder.ops), results)
    return Imported(Module({entry: main}, entry), tuple(inputs), kinds, bool(state.keys), tuple(notes))


def _results(state: ImportState, outputs: Sequence[Any]) -> tuple[tuple[Value, ...], tuple[Any, ...]]:
    results: list[Value] = []
    kinds: list[Any] = []
    state.needs(outputs)
    for output in outputs:
        value = state.made[output] if isinstance(output, fx.Node) else output
        if isinstance(value, Value):
            fake = output.meta["val"]
            kinds.append(Returned(len(results), fake.dtype, fake.device))
            results.append(value)
        else:
            kinds.append(value)
    return tuple(results), tuple(kinds)


def _note(notes: dict[str, None], dtype: torch.dtype) -> None:
    if narrowed(dtype) != dtype:
        notes[f"{dtype} is {narrowed(dtype)} on the device".replace("torch.", "")] = None


def convert(state: ImportState, node: fx.Node) -> None:
    """Make the operations of one node."""
    if state.known.is_wide(node):
        return  # until something uses it that is not known now
    b = state.builder
    state.needs(node.all_input_nodes)
    b.location = location_of(node)
    b.double = any(_is_double(each.meta.get("val")) for each in (node, *node.all_input_nodes))
    fake = node.meta.get("val")
    if node.op == "get_attr":
        state.made[node] = _attribute(state, str(node.target))
    elif node.target is operator.getitem:
        whole: Any = node.args[0]
        state.made[node] = state.made[whole][node.args[1]]
    elif isinstance(fake, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool):
        state.made[node] = plain(fake, location_of(node))
    elif str(node.target) not in _CHECKS:
        state.made[node] = _called(state, node, fake)


def _is_double(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.dtype == torch.float64


def _attribute(state: ImportState, name: str) -> Value | fx.GraphModule:
    """A tensor that the graph carries, which is a constant, or a graph that it calls."""
    owner = attribute(state.attributes, name)
    if isinstance(owner, fx.GraphModule):
        return owner
    dtype = device_dtype(owner.dtype, state.builder.location)
    with unset_fake_temporarily():  # while AOT autograd traces, tensors have no values, but this one has
        array = host_array(owner.cpu(), dtype, state.builder.location)
    return state.builder.constant(array, dtype, tuple(owner.shape))


def _called(state: ImportState, node: fx.Node, fake: Any) -> Any:
    name = str(node.target)
    control = CONTROL.get(name)
    converter = state.converters.get(name) if control is None else partial(_control, state, control)
    arguments = [_values(state, argument) for argument in _bound(node)]
    if converter is None:
        shown = ", ".join(_shown(argument) for argument in arguments)
        why, way = reason_of(name) or ("it is no operator of core ATen that is known", _way_out(name))
        raise _unknown(state, f"{name}({shown}) has no converter", why, way)
    fakes = fake if isinstance(fake, tuple | list) else (fake,)
    where = state.builder.location
    types = tuple(tensor_type(item, where) if isinstance(item, torch.Tensor) else None for item in fakes)
    call = Call(name, types, _used(node, len(fakes)), lambda: _key(state), node, state.made.__getitem__)
    made: Any = converter(state.builder, call, *arguments)
    several = isinstance(fake, tuple | list)
    _check(state, call, made if several else (made,))
    return made


def _control(state: ImportState, control: Callable[..., Any], b: Builder, call: Call, *arguments: Any) -> Any:
    """The operations of control flow, with those of the graphs that it calls inside of it."""

    def nested(graph: fx.GraphModule, values: Sequence[Any]) -> tuple[list[Op], list[Any]]:
        inner = ImportState(Builder(), state.converters, graph, {}, seed=state.seed, keys=state.keys)
        given = iter(values)
        results: list[Any] = []
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                inner.made[node] = next(given)
            elif node.op == "output":
                inner.builder.location = b.location
                inner.needs(node.all_input_nodes)
                made = _values(inner, node.args[0])
                results = list(made) if isinstance(made, tuple | list) else [made]
            else:
                convert(inner, node)
        if inner.keys != state.keys and call.name != "cond":
            reason = "random numbers are drawn in it, which would be the same in each trip"
            raise _unknown(state, call.name, reason, "draw them before, and pass them in")
        state.keys = inner.keys
        return list(inner.builder.ops), results

    return control(b, call, nested, *arguments)


def _way_out(name: str) -> str:
    if name.startswith(("aten.", "prims.")):
        return 'write it with other operators, or leave it to the host: options={"fallback": "host"}'
    return 'make it an operator with nki_op, or leave it to the host: options={"fallback": "host"}'


def _bound(node: fx.Node) -> list[Any]:
    """All arguments of an operator in the order of its schema, with its defaults."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return [*node.args, *node.kwargs.values()]
    bound = list(node.args)
    for argument in schema.arguments[len(bound) :]:
        bound.append(node.kwargs.get(argument.name, argument.default_value))
    return bound


def _values(state: ImportState, argument: Any) -> Any:
    if isinstance(argument, fx.Node):
        return state.made[argument]
    if isinstance(argument, tuple | list):
        return [_values(state, item) for item in argument]
    return plain(argument, state.builder.location)


def plain(argument: Any, where: Location = UNKNOWN) -> Any:
    """Symbolic numbers, which are known here, as numbers.

    Raises:
        GraphError: "graph.dynamic-shape" for one that is only known at run time.
    """
    if isinstance(argument, torch.SymInt):
        return number(argument, where) if has_free_unbacked_symbols(argument) else int(argument)
    if isinstance(argument, torch.SymFloat):
        return float(argument)
    return bool(argument) if isinstance(argument, torch.SymBool) else argument


def _used(node: fx.Node, count: int) -> frozenset[int]:
    places = [user.args[1] if user.target is operator.getitem else None for user in node.users]
    if count == 1 or any(place is None for place in places):
        return frozenset(range(count))
    return frozenset(int(str(place)) for place in places)


def _key(state: ImportState) -> Value:
    """Words that no other call of this model has, made of the seed and the number of the call."""
    b = state.builder
    state.keys += 1
    words = [b.reshape(b.slice(state.seed, 0, i, i + 1), ()) for i in range(2)]
    pair = threefry(b, (words[0], words[1]), (b.constant(state.keys, uint32), b.constant(0, uint32)))
    return b.concatenate([b.reshape(word, (1,)) for word in pair], 0)


def _check(state: ImportState, call: Call, made: Sequence[Any]) -> None:
    """Each value that is used has the type that PyTorch found."""
    for place, (value, type_) in enumerate(zip(made, call.types, strict=False)):
        if isinstance(value, Value) and place in call.used and value.type != type_:
            raise _unknown(
                state,
                f"{call.name} became {value.type}, but is {type_}",
                "a converter makes what PyTorch makes",
                "report this as a defect of nki",
            )


def _unknown(state: ImportState, message: str, reason: str, fix: str) -> GraphError:
    where: Location = state.builder.location
    return GraphError("graph.unsupported", f"{message}: {reason}", rule=_RULE, fix=fix, location=where)


_RULE = "an operation of the model has a kernel that computes it on the device"


def _shown(argument: Any) -> str:
    if isinstance(argument, Value):
        return str(argument.type)
    if isinstance(argument, fx.GraphModule):
        return "a graph"
    if isinstance(argument, list):
        return f"[{', '.join(map(_shown, argument))}]"
    return str(argument)
