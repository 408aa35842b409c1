"""Kernels that an exported model calls, compiled again from their source in modules that the user names."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from nki.core.errors import NkiError
from nki.core.source import Location
from nki.driver.compile import compiled
from nki.driver.compiled import Compiled
from nki.driver.prepare import prepare
from nki.graph.compile import Setting
from nki.graph.errors import GraphError
from nki.graph.ir import Module, Op
from nki.graph.references import TARGET, Reference, is_reference, register
from nki.kernel import Kernel


def kernels_of(model: Module, modules: Sequence[ModuleType], setting: Setting) -> list[Reference]:
    """Compile the kernels that a model names; they are known as long as the result lives.

    A kernel is found by the name of its function. It is compiled for the operands of its call, and for the numbers that
    the call says it was given.

    Args:
        modules: where kernels are looked for.
        setting: how the model is compiled.

    Raises:
        GraphError: "graph.reference" for a kernel that no module has, whose arguments are not in the model, or which
            returns something else than the call.
        NkiError: what the compiler of kernels raises.
    """
    return [_compiled(op, modules, setting) for op in model.walk() if is_reference(op)]


def _compiled(op: Op, modules: Sequence[ModuleType], setting: Setting) -> Reference:
    config = _fields(op)
    name, names = str(config.get("func_name", "")), list(config["klir_binary"].get("input_names", ()))
    kernel = _found(name, modules, op.location)
    constants, parameters = config.get("constants", {}), kernel.func.__code__.co_varnames
    unknown = [each for each in names if each not in parameters]
    if constants is None or unknown or len(names) != len(op.operands):
        what = f"the tensors {', '.join(unknown)}" if unknown else "arguments that are neither tensors nor numbers"
        raise _error(f"{name} was called with {what}, which the model does not hold", op.location)
    arrays = {
        each: np.zeros(value.type.shape, value.type.dtype.numpy) for each, value in zip(names, op.operands, strict=True)
    }
    grid = list(config.get("grid", ()))
    made = _compile(kernel[grid[0]] if grid else kernel, {**constants, **arrays}, setting)
    found = [(tuple(view.shape), view.dtype) for view in made.programs[0].outputs]
    wanted = [(result.type.shape, result.type.dtype) for result in op.results]
    if found != wanted:
        raise _error(f"{name} returns {found} now, but {wanted} in the model", op.location)
    return register(str(config["klir_binary"]["binary"]), name, made.programs)


def _fields(op: Op) -> Mapping[str, Any]:
    config = op.attributes.get("backend_config", "")
    try:
        fields: Any = config if isinstance(config, Mapping) else json.loads(base64.b64decode(config, validate=True))
        fields["klir_binary"]["binary"]
    except (ValueError, KeyError, TypeError) as error:
        raise _error(f"its backend_config cannot be read ({type(error).__name__})", op.location) from None
    found: Mapping[str, Any] = fields
    return found


def _found(name: str, modules: Sequence[ModuleType], where: Location) -> Kernel:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Kernel) and value.func.__name__ == name:
                return value
    names = ", ".join(module.__name__ for module in modules)
    raise _error(f"the custom call names kernel {name or '?'}, which is not in {names}", where)


def _compile(kernel: Kernel, arguments: Mapping[str, Any], setting: Setting) -> Compiled:
    return compiled(prepare(kernel, (), arguments, setting.options, "compiled", target=setting.target))


def _error(message: str, where: Location) -> NkiError:
    return GraphError(
        "graph.reference",
        f"{TARGET}: {message}",
        rule="an exported model names kernels; their source is in modules that are imported",
        source="nki/guides/framework_custom_op.rst",
        fix="name the module that defines the kernel: nki cc --import MODULE",
        location=where,
    )
