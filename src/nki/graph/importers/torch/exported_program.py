"""A program that ``torch.export.save`` wrote, as a model: parameters and buffers become its constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel

from nki.graph.importers.torch.archive import checked_archive, refused
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.import_graph import Returned, import_graph
from nki.graph.importers.torch.table import Converter
from nki.graph.importers.torch.types import host_array
from nki.graph.ir import Module, Op

_INT32 = (-(1 << 31), (1 << 31) - 1)


Bodies = Mapping[Any, Callable[..., Any]]

Found = Callable[[torch.fx.GraphModule], Mapping[str, Converter]]


def read_exported(
    path: Path,
    bodies: Bodies | None = None,
    kernels: Found | None = None,
    opened: Callable[[torch.fx.GraphModule], None] | None = None,
) -> Module:
    """The model in a ``.pt2`` file.

    Its arguments are those of the user, then the buffers that it changes, under their names. Its results are the new
    values of these buffers and of arguments that it changes, then those of the user; the memory of an argument may be
    that of its new value.

    Args:
        bodies: what operators do that are not PyTorch's, as decompositions.
        kernels: converters for the calls of kernels in a graph.
        opened: puts what operators do that write to arguments in their place in a graph.

    Raises:
        UsageError: "cc.model" for a file that PyTorch cannot read, or one with numbers that do not fit; "cc.pickle" for
            one that only running what it says could read.
        GraphError: "graph.unsupported" for an operator without a converter, "graph.dynamic-shape" for sizes that are
            not numbers.
    """
    archive = checked_archive(path)
    try:
        program = torch.export.load(archive)
    except Exception as problem:  # noqa: BLE001 - whatever the reader of another package stumbles over
        raise refused(
            f"{path} cannot be read: {type(problem).__name__}", "torch.export.save writes such files"
        ) from None
    if opened is not None:
        opened(program.graph_module)
    with sdpa_kernel([SDPBackend.MATH]):
        return module_of(program.run_decompositions({**decompositions(), **(bodies or {})}), kernels)


def module_of(program: ExportedProgram, kernels: Found | None = None) -> Module:
    """The model of a program that consists of core ATen operators, and calls of kernels."""
    signature = program.graph_signature
    specs = signature.input_specs
    kept = {*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()}
    names = [_name(spec) for spec in specs]
    imported = import_graph(program.graph_module, names, None if kernels is None else kernels(program.graph_module))
    function, held = imported.module.main, {**program.state_dict, **program.constants}
    given, states, constants = [], [], []
    for value, position in zip(function.arguments, imported.inputs, strict=False):
        spec = specs[position]
        if spec.kind is InputKind.USER_INPUT:
            given.append(value)
        elif spec.target in kept:
            states.append(value)
        else:
            array = _array(held[str(spec.target)], value.type.dtype, str(spec.target))
            constants.append(Op("constant", (), (value,), {"value": array}))
    function.arguments = (*given, *states, *function.arguments[len(imported.inputs) :])
    function.body[:0] = constants
    changed = _changed(program, imported.outputs)
    places = {value.name: number for number, value in enumerate(function.arguments)}
    attributes: list[Mapping[str, Any]] = [{} for _ in function.arguments]
    for number, name in changed.items():
        if name in places:
            attributes[places[name]] = {"tf.aliasing_output": number}
    function.argument_attributes = tuple(attributes) if changed else ()
    return imported.module


def _name(spec: Any) -> str:
    return str(spec.arg.name) if spec.kind is InputKind.USER_INPUT else str(spec.target)


def _changed(program: ExportedProgram, outputs: tuple[Any, ...]) -> dict[int, str]:
    """Which results are new values of a buffer or an argument, and of which."""
    found = {}
    for spec, kind in zip(program.graph_signature.output_specs, outputs, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION) and isinstance(kind, Returned):
            found[kind.number] = str(spec.target)
    return found


def _array(tensor: torch.Tensor, dtype: Any, name: str) -> Any:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.int64 and tensor.numel():
        low, high = (int(bound) for bound in torch.aminmax(tensor))
        if low < _INT32[0] or high > _INT32[1]:
            raise refused(f"{name} has values from {low} to {high}", "64-bit integers have 32 bits on the device")
    return host_array(tensor, dtype)
