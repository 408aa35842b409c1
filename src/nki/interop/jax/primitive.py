"""The JAX primitive ``nki_call``: one call of a compiled kernel under `jit`, `vmap`, `scan` and `shard_map`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from nki.core.errors import LaunchError
from nki.core.install import install_extra
from nki.core.source import Location
from nki.interop.common.backend_config import TARGET
from nki.interop.jax.callee import CALLEES, Callee
from nki.interop.jax.ffi_handler import HANDSHAKE

nki_call = Primitive("nki_call")
nki_call.multiple_results = True


@dataclass(frozen=True, slots=True)
class Site:
    """Where the user's code calls the kernel. All are equal: calls that only differ in it share JAX's caches."""

    location: Location = field(compare=False)

    def __repr__(self) -> str:
        return str(self.location)


def _evaluate(*arrays: Any, callee: Callee, site: Site) -> list[Any]:
    """Outside any transformation."""
    return [jax.numpy.asarray(result) for result in callee.run([np.array(array) for array in arrays], "jax")]


def _abstract(*avals: Any, callee: Callee, site: Site) -> list[Any]:
    """Shapes and dtypes. Within a `shard_map` a result varies along every mesh axis that some operand varies along."""
    meshes = [aval.sharding.mesh for aval in avals if not aval.sharding.mesh.empty]
    if not meshes:
        return [jax.core.ShapedArray(out.shape, out.dtype) for out in callee.outputs]
    varying = frozenset[str]().union(*(aval.manual_axis_type.varying for aval in avals))
    return [
        jax.core.ShapedArray(
            out.shape,
            out.dtype,
            sharding=jax.sharding.NamedSharding(meshes[0], jax.sharding.PartitionSpec(*[None] * len(out.shape))),
            manual_axis_type=jax.sharding.ManualAxisType(varying=varying),
        )
        for out in callee.outputs
    ]


def _batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Sequence[Any], Sequence[int]]:
    """`vmap`: the kernel is called for one element of the batch after the other.

    Nothing is known of a kernel that would allow one call for all of them.
    """
    batched = [i for i, dim in enumerate(dims) if dim is not None]
    moved = [jax.numpy.moveaxis(args[i], dims[i], 0) for i in batched]

    def one(elements: Sequence[Any]) -> Sequence[Any]:
        operands = list(args)
        for i, element in zip(batched, elements, strict=True):
            operands[i] = element
        bound: Sequence[Any] = nki_call.bind(*operands, **params)
        return bound

    results = jax.lax.map(one, moved)
    return results, [0] * len(results)


def _refuse_gradient(*_: Any, callee: Callee, site: Site, **__: Any) -> Any:
    name = callee.config.func_name
    raise LaunchError(
        "jax.no-gradient",
        f"{name} is differentiated, and nobody said what its derivative is",
        rule="the derivative of a kernel is another function, which its author gives",
        source="nki/guides/framework_custom_op.rst, Using NKI in training graphs",
        fix=f"say what it is: {name}.defvjp(forward, backward); or wrap the kernel in jax.custom_vjp",
        location=site.location,
    )


def _lower_official(ctx: Any, *operands: Any, callee: Callee, site: Site) -> Any:
    """For devices: the custom call as the official toolchain writes it."""
    rule = jax.ffi.ffi_lowering(TARGET, api_version=2, backend_config=callee.config.encoded())
    return rule(ctx, *operands)


def _lower_for_cpu(ctx: Any, *operands: Any, callee: Callee, site: Site) -> Any:
    """For the host: the same call with typed attributes, which our handler serves."""
    if HANDSHAKE.problem:
        raise _unknown(HANDSHAKE.problem, callee, site)
    ctx.module_context.add_keepalive(CALLEES.hold(callee))
    rule = jax.ffi.ffi_lowering(TARGET, backend_config=callee.config.attributes(mlir.ir))
    return rule(ctx, *operands)


def _unknown(problem: str, callee: Callee, site: Site) -> LaunchError:
    return LaunchError(
        "jax.interface",
        f"XLA cannot call {callee.config.func_name}: {problem}",
        rule="kernels are called through XLA's foreign function interface, in the versions that are known here",
        source="docs/jax.md",
        fix=f"install a version of jax that the extra jax allows: {install_extra('jax')}",
        location=site.location,
    )


@cache
def install() -> None:
    """Tell JAX what it does with the primitive in each transformation; once per process."""
    nki_call.def_impl(_evaluate)
    nki_call.def_abstract_eval(_abstract)
    batching.primitive_batchers[nki_call] = _batch
    ad.primitive_jvps[nki_call] = _refuse_gradient
    ad.primitive_transposes[nki_call] = _refuse_gradient
    mlir.register_lowering(nki_call, _lower_official)
    mlir.register_lowering(nki_call, _lower_for_cpu, platform="cpu")
