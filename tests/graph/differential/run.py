"""A graph as a function of its framework, computed by the framework and on the simulated device."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx

from nki.graph.compile import compile_module
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.import_graph import import_graph
from nki.graph.importers.torch.types import host_array, host_tensor
from nki.graph.ir import Function, Op
from nki.interop import jax as nki_jax
from nki.options import from_environment
from tests.graph.differential.records import NUMPY, Array, Graph
from tests.graph.differential.table import TABLE

_SCOPE: dict[str, Any] = {"torch": torch, "jax": jax, "jnp": jnp, "lax": lax}


def source(graph: Graph) -> str:
    """The function, as text."""
    names = [f"x{n}" for n in range(len(graph.inputs))]
    lines = [f"def f({', '.join(names)}):"]
    for node in graph.nodes:
        operands = [names[k] for k in node.operands]
        names.append(f"v{len(names)}")
        code = TABLE[node.operator].code(graph.language).format(*operands, **node.attributes)
        code = code.format(*operands) if "{" in code else code  # an operand that there may be, or not
        lines.append(f"    {names[-1]} = {code}")
    lines.append(f"    return ({', '.join(names[k] for k in graph.results)},)")
    return "\n".join(lines)


def function(graph: Graph) -> Callable[..., Any]:
    """The function itself."""
    scope = dict(_SCOPE)
    exec(source(graph), scope)
    made: Callable[..., Any] = scope["f"]
    return made


def arrays(graph: Graph) -> list[Array]:
    return [x.array() for x in graph.inputs]


def tensor(array: Array) -> torch.Tensor:
    """An array, of any dtype, as a tensor."""
    return host_tensor(np.ascontiguousarray(array), getattr(torch, array.dtype.name))


def plain(value: Any) -> Array:
    """A result of a framework as an array of the dtype that it has there."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        if name in NUMPY and name not in ("float32", "float16", "int32", "int16", "int8", "uint8", "bool"):
            stored = torch.uint8 if value.dtype.itemsize == 1 else torch.uint16
            return np.asarray(value.contiguous().view(stored).numpy()).view(NUMPY[name])
        return np.asarray(value.detach().numpy())
    return np.asarray(value)


def eagerly(graph: Graph) -> list[Array]:
    """What the framework computes, operator by operator."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if graph.language == "jax":
            return [plain(x) for x in jax.jit(function(graph))(*arrays(graph))]
        return [plain(x) for x in function(graph)(*map(tensor, arrays(graph)))]


def on_device(graph: Graph, called: Callable[..., Any] | None = None) -> list[Array]:
    """What the device computes; raises what the product raises.

    Args:
        called: in the place of the graph's function.
    """
    called = function(graph) if called is None else called
    with _native(graph.native), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if graph.front == "jax":
            return _by_jax(graph, called)
        if graph.front == "dynamo":
            return _by_dynamo(graph, called)
        return _imported(graph, called)


def _by_jax(graph: Graph, called: Callable[..., Any]) -> list[Array]:
    inputs = [jnp.asarray(x) for x in arrays(graph)]
    given = [k for k in range(len(inputs)) if k not in graph.constants]

    def f(*rest: Any) -> Any:
        known = dict(zip(given, rest, strict=True))
        return called(*(known.get(k, inputs[k]) for k in range(len(inputs))))

    made = nki_jax.compile(f, target=graph.target, lnc=graph.cores)
    return [plain(x) for x in made(*(inputs[k] for k in given))]


def _imported(graph: Graph, called: Callable[..., Any]) -> list[Array]:
    """Without Dynamo: traced, taken apart as AOT autograd does it, imported, compiled and run."""
    inputs = [tensor(x) for x in arrays(graph)]
    with enable_python_dispatcher():  # as AOT autograd does, for operators that are made of others
        traced = make_fx(called, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    imported = import_graph(traced)
    places = [place for place in imported.inputs if place not in graph.constants]
    _bind(imported.module.main, {n: inputs[k] for n, k in enumerate(imported.inputs) if k in graph.constants})
    executable = compile_module(
        imported.module, target=graph.target, lnc=graph.cores, options=from_environment(), name=f"graph{graph.seed}"
    )
    pairs = zip(places, executable.arguments, strict=True)
    found = executable.run([host_array(inputs[place], port.dtype) for place, port in pairs])
    return [plain(host_tensor(found[kind.number], kind.dtype)) for kind in imported.outputs]


def _bind(main: Function, known: Mapping[int, torch.Tensor]) -> None:
    """Arguments as constants, as in a model that comes from a file."""
    values = [main.arguments[n] for n in known]
    arrays_ = [host_array(x, value.type.dtype) for x, value in zip(known.values(), values, strict=True)]
    main.body[:0] = [
        Op("constant", (), (value,), {"value": array.reshape(value.type.shape)})
        for value, array in zip(values, arrays_, strict=True)
    ]
    main.arguments = tuple(value for n, value in enumerate(main.arguments) if n not in known)


def _by_dynamo(graph: Graph, called: Callable[..., Any]) -> list[Array]:
    import nki.interop.torch  # noqa: F401  registers the backend

    torch._dynamo.reset()
    options = {"target": graph.target, "lnc": graph.cores}
    made = torch.compile(called, backend="neuron", fullgraph=True, dynamic=False, options=options)
    return [plain(x) for x in made(*map(tensor, arrays(graph)))]


@contextmanager
def _native(value: str) -> Iterator[None]:
    before = os.environ.get("NKI_NATIVE")
    os.environ["NKI_NATIVE"] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ["NKI_NATIVE"]
        else:
            os.environ["NKI_NATIVE"] = before
