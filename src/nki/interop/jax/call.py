"""A call of a kernel with JAX arrays that have no values yet: it is compiled now, and becomes part of JAX's program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from nki import collectives
from nki.core.errors import ArgumentError, LaunchError, NkiError
from nki.core.source import of_function
from nki.core.tensor import Buffer, View
from nki.driver.call import call
from nki.driver.compile import compiled
from nki.driver.compiled import Compiled
from nki.driver.execute import run_compiled
from nki.driver.launch import Launch
from nki.driver.prepare import Prepared, prepare
from nki.frontend.host import HostArray, Kind, as_dtype_or_raise, take
from nki.frontend.results import check_writable, deliver
from nki.frontend.values import Arguments
from nki.interop.common.backend_config import BackendConfig, constants_of
from nki.interop.jax.callee import CALLEES, Arrays, Callee, Run, Shaped
from nki.interop.jax.ffi_structures import DTYPES
from nki.interop.jax.primitive import Site, nki_call
from nki.interop.jax.result_trees import filled, leaves
from nki.interop.jax.user_location import move_out, user_site
from nki.interop.jax.xla_errors import kernel_errors
from nki.kernel import Kernel
from nki.ranks.current import communicator
from nki.report import Report, warn
from nki.spec.rule import Finding
from nki.store.keys import key_of


def traced_call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results as arrays of the program that JAX is tracing. Raises whatever the kernel is refused for."""
    try:
        callee, operands, tree = _callable(kernel, args, kwargs)
    except NkiError as error:
        move_out(error, of_function(kernel.func.__code__))
        raise
    callee.tell(kernel)
    with kernel_errors():
        results = nki_call.bind(*operands, callee=callee, site=Site(user_site()))
    return filled(tree, iter(results))


def _callable(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callee, list[Any], Any]:
    """The compiled kernel, its operands, and the tree of its results."""
    prepared = prepare(kernel, args, kwargs, see=_see)
    arguments = prepared.arguments
    operands = [_operand(host) for host in arguments.arrays]
    made = compiled(prepared)
    check_writable(made.programs, [host._replace(kind="jax") for host in arguments.arrays], made.written)
    _check_dtypes(made, prepared.launch)
    for finding in made.findings:
        warn(finding)
    constants = constants_of(arguments.bound)
    run = _eagerly(prepared, _forgetful(arguments), made) if prepared.mode == "eager" else _compiled(prepared, made)
    callee = _callee(prepared, made, run, constants)
    return CALLEES.one(callee), operands, made.result


def _see(value: Any, kind: Kind, name: str) -> HostArray:
    """An array of JAX by its shape and dtype alone."""
    if kind != "jax":
        return take(value, kind, name)
    _check_known(value, name)
    dtype = np.dtype(value.dtype)
    as_dtype_or_raise(dtype, name)
    if not value.size:
        return take(np.zeros(value.shape, dtype), "numpy", name)
    # One element that counts as many: what takes it looks at shape and dtype, as if it were an array of the host.
    seen = take(np.zeros(1, dtype), "numpy", name)
    return seen._replace(kind="jax", original=value, array=np.broadcast_to(seen.array, value.shape or (1,)))


def _check_known(value: Any, name: str) -> None:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        raise ArgumentError(
            "argument.dtype",
            f"argument {name} is an array of {value.dtype}",
            rule="kernels take numeric arrays",
            fix=f"pass the numbers behind it, for example jax.random.key_data({name})",
        )
    if not all(isinstance(size, int) for size in value.shape):
        raise ArgumentError(
            "jax.symbolic-shape",
            f"argument {name} has shape {tuple(value.shape)}",
            rule="a kernel is compiled for shapes that are numbers",
            fix="export or lower the function once for each shape",
        )


def _operand(host: HostArray) -> Any:
    array = host.original if host.kind == "jax" else host.array
    return (
        jax.numpy.reshape(array, host.array.shape) if np.shape(array) != host.array.shape else jax.numpy.asarray(array)
    )


def _check_dtypes(made: Compiled, launch: Launch) -> None:
    for view in leaves(made.result):
        if view.dtype.is_packed:
            raise LaunchError(
                "result.dtype",
                f"JAX has no dtype for {view.dtype}, which {launch.name} returns",
                fix="view the result as uint8 in the kernel",
            )


def _callee(prepared: Prepared, made: Compiled, run: Run, constants: str) -> Callee:
    views: list[View] = leaves(made.result)
    program, launch, report = made.programs[0], prepared.launch, _report(prepared, made)
    inputs, outputs = [_shaped(buffer) for buffer in program.inputs], [_shaped(view) for view in views]
    code = launch.function.__code__
    key = key_of(
        "jax",
        ir=made.kernel_hash,
        target=report.target,
        options=prepared.options,
        mode=report.mode,
        place=(code.co_filename, code.co_firstlineno, launch.name),
        arrays=[(shaped.shape, str(shaped.dtype)) for shaped in (*inputs, *outputs)],
    )
    config = BackendConfig(
        key,
        tuple(buffer.name for buffer in program.inputs),
        tuple(view.buffer.name for view in views),
        launch.name,
        () if launch.lnc is None else (launch.lnc,),
        any(issued.instruction.name in collectives.__all__ for issued in program.body.walk()),
        constants,
    )
    return Callee(config, inputs, outputs, run, report)


def _shaped(tensor: Buffer | View) -> Shaped:
    dtype = tensor.dtype.numpy
    return Shaped(tensor.shape, dtype, DTYPES[dtype.name], tensor.nbytes)


def _compiled(prepared: Prepared, made: Compiled) -> Run:
    """How a compiled kernel runs: on the buffers themselves, but for those that it writes to."""
    views, target, options = tuple(leaves(made.result)), prepared.target, prepared.options

    def run(arrays: Arrays) -> Any:
        findings: list[Finding] = []
        inputs = [array.copy() if i in made.written else array for i, array in enumerate(arrays)]
        storages, executed = run_compiled(made, inputs, target, options, findings.append, None, communicator())
        for finding in findings:
            warn(finding)
        return deliver(views, made.programs[0], storages, ()), executed, findings

    return run


def _eagerly(prepared: Prepared, arguments: Arguments, made: Compiled) -> Run:
    """How a kernel runs under `nki.simulate`: its Python body, on copies of the buffers, whenever XLA calls it."""
    launch, options = replace(prepared.launch, eager=True), prepared.options

    def run(arrays: Arrays) -> Any:
        feed = iter([array.copy() for array in arrays])
        args, kwargs = arguments.build(lambda host, name: next(feed))  # type: ignore[arg-type,return-value]
        result, report = call(launch, tuple(args), kwargs, {}, options)
        new = [finding for finding in report.findings if finding not in made.findings]
        return leaves(made.result, result), report.executed, new

    return run


def _forgetful(arguments: Arguments) -> Arguments:
    """Let go of the caller's arrays, which may belong to a program that JAX is done with."""
    arguments.bound = {}
    arguments.arrays = [host._replace(original=None) for host in arguments.arrays]
    return arguments


def _report(prepared: Prepared, made: Compiled) -> Report:
    launch, options, eager = prepared.launch, prepared.options, prepared.mode == "eager"
    return Report(
        kernel=launch.name,
        target=prepared.target.name,
        mode=prepared.mode,
        cores=launch.cores,
        matmul=options.matmul,
        precise_fp=options.precise_fp,
        kernel_hash="" if eager else made.kernel_hash,
        findings=(*prepared.findings, *made.findings),
        programs=made.programs,
        statements=launch.compile_config.statements() if launch.compile_config else (),
        compiled="" if eager else made.origin,
        doubt=made.doubt,
        imitate=options.imitate,
        kept_loads=() if eager else made.kept_loads,
    )
