"""A model in MLIR becomes records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki.core.source import UNKNOWN, Frame, Location, is_own
from nki.graph.copies import copy_op
from nki.graph.errors import GraphError
from nki.graph.ir import Function, Group, Module, Op, Region, TensorType, Value
from nki.graph.stablehlo import mlir
from nki.graph.stablehlo.attributes import PrintedElements, decode, decode_attributes
from nki.graph.stablehlo.names import GROUP_NAME, KIND
from nki.graph.stablehlo.origins import read_origin
from nki.graph.stablehlo.types import dtype_of, is_complex

_PRODUCER_FROM_0 = "mhlo.num_partitions"  # what JAX writes; its columns count from 0


def read(source: str | bytes, file: str = "") -> Module:
    """A model as records.

    Args:
        file: where the source came from, for operations that have no other location.
        source: MLIR text, MLIR bytecode, or a portable artifact of StableHLO. Functions with the attribute
            ``nki.kind`` become groups where they are called.

    Raises:
        GraphError: "graph.parse", "graph.dtype", "graph.shape", "graph.entry".
    """
    return read_module(mlir.parse(source), file)


def read_module(module: Any, file: str = "") -> Module:
    """A model from a module of the bindings in `nki.graph.stablehlo.mlir`; see `read`."""
    reader = _ModuleParser(0 if _PRODUCER_FROM_0 in module.operation.attributes else 1, file)
    functions = {}
    for item in module.body.operations:
        operation = item.operation
        if operation.name == "func.func":
            function = reader.function(operation)
            functions[function.name] = function
    result = Module(functions, _entry(functions))
    _restore_groups(result)
    return result


def _entry(functions: Mapping[str, Function]) -> str:
    if "main" in functions:
        return "main"
    public = [name for name, function in functions.items() if function.attributes.get("sym_visibility") != "private"]
    if len(public) != 1:
        raise GraphError(
            "graph.entry",
            f"the model has the public functions {', '.join(public) or '(none)'}",
            rule="one function runs: `main`, or the only public one",
            fix="name the function that runs `main`",
            location=UNKNOWN,
        )
    return public[0]


class _ModuleParser:
    """One module; `columns` is what its producer counts columns from."""

    def __init__(self, columns: int, file: str) -> None:
        self._values: dict[Any, tuple[Value, ...]] = {}
        self._locations: dict[Any, Location] = {}
        self._columns = columns
        self._file = file

    def function(self, operation: Any) -> Function:
        attributes = {a.name: decode(a.attr) for a in _named(operation)}
        blocks = operation.regions[0].blocks
        name = attributes.pop("sym_name")
        attributes.pop("function_type")
        arguments_attributes = attributes.pop("arg_attrs", ())
        result_attributes = attributes.pop("res_attrs", ())
        if not len(blocks):
            return Function(name, (), [], (), attributes=attributes)
        region = self.region(operation.regions[0])
        return Function(
            name, region.arguments, region.ops, region.results, arguments_attributes, result_attributes, attributes
        )

    def region(self, region: Any) -> Region:
        if len(region.blocks) != 1:
            raise GraphError(
                "graph.parse",
                "a region has several blocks",
                rule="control flow is structured, as in StableHLO",
                fix="use stablehlo.while, stablehlo.if and stablehlo.case",
                location=UNKNOWN,
            )
        block = region.blocks[0]
        arguments = tuple(self.make(argument, _argument_name(argument)) for argument in block.arguments)
        ops: list[Op | Group] = []
        results: tuple[Value, ...] = ()
        for item in block.operations:
            operation = item.operation
            if operation.name in ("func.return", "stablehlo.return"):
                results = self.operands(operation)
            else:
                self.operation(operation, ops)
        return Region(tuple(value for one in arguments for value in one), ops, results)

    def operation(self, operation: Any, ops: list[Op | Group]) -> None:
        dialect, _, name = operation.name.partition(".")
        if name == "get_tuple_element":
            index = operation.attributes["index"].value
            self._values[operation.results[0]] = (self._values[operation.operands[0]][index],)
            return
        if name == "tuple":
            self._values[operation.results[0]] = self.operands(operation)
            return
        if dialect not in ("stablehlo", "func"):
            name = operation.name
        location = self.location(operation.location)
        operands = self.operands(operation)
        attributes = decode_attributes(name, {a.name: a.attr for a in _named(operation)})
        regions = tuple(self.region(region) for region in operation.regions)
        try:
            results = tuple(value for result in operation.results for value in self.make(result, "", location))
        except GraphError as error:
            raise _without_elements(name, operation, location, error) from None
        ops.append(Op(name, operands, results, attributes, regions, location))

    def operands(self, operation: Any) -> tuple[Value, ...]:
        return tuple(value for operand in operation.operands for value in self._values[operand])

    def make(self, value: Any, name: str, location: Location = UNKNOWN) -> tuple[Value, ...]:
        made = tuple(Value(kind, name) for kind in _types(value.type, location))
        self._values[value] = made
        return made

    def location(self, location: Any) -> Location:
        found = self._locations.get(location)
        if found is None:
            frames = [frame for frame in self._frames(location, "") if not is_own(frame)]  # JAX sees our calls of it
            found = self._locations[location] = Location(tuple(frames), read_origin(location))
        return found

    def _frames(self, location: Any, function: str) -> list[Frame]:
        kind = type(location)
        if kind is mlir.CallSiteLoc:
            return self._frames(location.callee, "") + self._frames(location.caller, "")
        if kind is mlir.NameLoc:
            return self._frames(location.child_loc, location.name_str)
        if kind is mlir.FusedLoc:
            for item in location.locations:  # the first that says a line; the others were merged into it
                frames = self._frames(item, function)
                if frames:
                    return frames
            return []
        if kind is mlir.FileLineColLoc:
            base = self._columns
            end = max(location.end_col - base, 0) if location.end_line else 0
            first = max(location.start_col - base, 0)
            name = location.filename if location.filename != "-" else self._file
            if not name:
                return []
            return [Frame(name, function, location.start_line, first, location.end_line, end)]
        return []


def _named(operation: Any) -> list[Any]:
    attributes = operation.attributes
    if operation.name == "stablehlo.constant" and is_complex(operation.results[0].type.element_type):
        return [_Named("value", PrintedElements(operation))]  # which the bindings cannot hand out
    return [_Named(name, attributes[name]) for name in attributes]


class _Named:
    __slots__ = ("attr", "name")

    def __init__(self, name: Any, attr: Any) -> None:
        self.name: str = name if isinstance(name, str) else name.name
        self.attr = attr


def _types(kind: Any, location: Location) -> tuple[TensorType, ...]:
    if isinstance(kind, mlir.TupleType):
        return tuple(t for i in range(kind.num_types) for t in _types(kind.get_type(i), location))
    if not isinstance(kind, mlir.RankedTensorType) or not kind.has_static_shape:
        raise GraphError(
            "graph.shape",
            f"the model has a value of type {kind}",
            rule="values are tensors of static shape",
            fix="export the model for the shapes of its inputs, without dynamic dimensions, tokens and futures",
            location=location,
        )
    return (TensorType(tuple(kind.shape), dtype_of(str(kind.element_type))),)


def _without_elements(name: str, operation: Any, location: Location, error: GraphError) -> GraphError:
    """The error about a type, with the operation that makes it."""
    operands = ", ".join(str(operand.type) for operand in operation.operands)
    results = ", ".join(str(result.type) for result in operation.results)
    message = f"{name}({operands}) -> {results}: {error.message}"
    return GraphError(error.code, message, rule=error.rule, fix=error.fix, location=location)


def _argument_name(argument: Any) -> str:
    location = argument.location
    return location.name_str if isinstance(location, mlir.NameLoc) else ""


# -------------------------------------------------------------------------------------------------------------- groups


def _restore_groups(module: Module) -> None:
    """Calls of functions that are groups become the groups again."""
    kernels = {name: f for name, f in module.functions.items() if KIND in f.attributes}
    for name in kernels:
        del module.functions[name]
    for function in module.functions.values():
        function.body = [_restored(item, kernels) for item in function.body]


def _restored(item: Op | Group, kernels: Mapping[str, Function]) -> Op | Group:
    if isinstance(item, Op) and item.name == "call" and item.attributes["callee"] in kernels:
        return _inlined(item, kernels)
    if isinstance(item, Op):
        for region in item.regions:
            region.ops = [_restored(inner, kernels) for inner in region.ops]
    return item


def _inlined(call: Op, kernels: Mapping[str, Function]) -> Group:
    """The group of a call: its inputs are the call's operands, its outputs the call's results."""
    kernel = kernels[call.attributes["callee"]]
    values: dict[Value, Value] = dict(zip(kernel.arguments, call.operands, strict=True))
    values.update(zip(kernel.results, call.results, strict=True))
    copies = (copy_op(op, values) for op in kernel.body if isinstance(op, Op))
    ops = tuple(op for op in (_restored(copy, kernels) for copy in copies) if isinstance(op, Op))
    attributes = kernel.attributes
    return Group(attributes[KIND], ops, call.operands, call.results, attributes.get(GROUP_NAME, ""))
