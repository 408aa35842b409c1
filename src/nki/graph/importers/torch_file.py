"""A program that ``torch.export.save`` wrote, as a model: parameters and buffers become its constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.graph.importers.torch_import import import_graph
from nki.graph.ir import Module, Op


def read_exported(path: Path) -> Module:
    """The model in a ``.pt2`` file; its arguments are those of the user, its results those of the program's graph.

    Raises:
        UsageError: "cc.model" for a file that PyTorch cannot read, or one that changes its parameters or buffers.
        GraphError: "graph.unsupported" for an operator without a converter.
    """
    try:
        program = torch.export.load(path)
    except Exception as problem:  # noqa: BLE001 - whatever the reader of another package stumbles over
        raise _error(
            f"{path} cannot be read: {type(problem).__name__}", "torch.export.save writes such files"
        ) from None
    program = program.run_decompositions()
    changed = {**program.graph_signature.buffers_to_mutate, **program.graph_signature.user_inputs_to_mutate}
    if changed:
        raise _error(
            f"{path} changes {', '.join(sorted(changed.values()))}", "a model leaves what it is given unchanged"
        )
    specs = program.graph_signature.input_specs
    names = [spec.target if spec.kind is not InputKind.USER_INPUT else str(spec.arg.name) for spec in specs]
    imported = import_graph(program.graph_module, names)
    module, function = imported.module, imported.module.main
    arguments, constants = [], []
    for value, position in zip(function.arguments, imported.inputs, strict=False):
        spec = specs[position]
        if spec.kind is InputKind.USER_INPUT:
            arguments.append(value)
            continue
        tensor = {**program.state_dict, **program.constants}[str(spec.target)]
        constants.append(Op("constant", (), (value,), {"value": _array(tensor, value.type.dtype.numpy)}))
    more = function.arguments[len(imported.inputs) :]
    function.arguments = (*arguments, *more)
    function.argument_attributes = ()
    function.body[:0] = constants
    return module


def _array(tensor: torch.Tensor, dtype: np.dtype[Any]) -> np.ndarray:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(dtype)
    return tensor.numpy().astype(dtype, copy=False)


def _error(message: str, rule: str) -> UsageError:
    return UsageError("cc.model", message, rule=rule, fix="export the model again in eval mode", location=UNKNOWN)
