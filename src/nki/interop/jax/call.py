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
from nki.driver.compile import compile_kernel
from nki.driver.compiled import Cache, Compiled
from nki.driver.execute import run_compiled
from nki.driver.launch import Launch, check_lnc, launch_options
from nki.frontend.check.language_check import check_function, raise_errors
from nki.frontend.host import HostArray, Kind, as_dtype_or_raise, take
from nki.frontend.results import check_writable, deliver
from nki.frontend.trace import attach
from nki.frontend.values import Arguments, Parameters, bind
from nki.interop.common.backend_config import BackendConfig, constants_of
from nki.interop.jax.callee import CALLEES, Arrays, Callee, Run, Shaped
from nki.interop.jax.ffi_structures import DTYPES
from nki.interop.jax.primitive import Site, nki_call
from nki.interop.jax.result_trees import filled, leaves
from nki.interop.jax.user_location import move_out, user_site
from nki.interop.jax.xla_errors import kernel_errors
from nki.jit import Kernel
from nki.options import Options, from_environment
from nki.ranks.current import communicator
from nki.report import Report, warn
from nki.spec.rule import Finding
from nki.store.keys import key_of
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target


def traced_call(kernel: Kernel, cache: Cache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results as arrays of the program that JAX is tracing. Raises whatever the kernel is refused for."""
    launch = kernel.launch()
    try:
        callee, operands, tree = _prepared(launch, cache, args, kwargs)
    except NkiError as error:
        move_out(error, of_function(launch.function.__code__))
        raise
    callee.tell(kernel)
    with kernel_errors():
        results = nki_call.bind(*operands, callee=callee, site=Site(user_site()))
    return filled(tree, iter(results))


def _prepared(
    launch: Launch, cache: Cache, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callee, list[Any], Any]:
    """The compiled kernel, its operands, and the tree of its results."""
    options = launch_options(launch, from_environment())
    target = load_target(options.target or launch.target or DEFAULT_TARGET)
    check_lnc(launch, target)
    noted = raise_errors(check_function(launch.function), options.disabled_rules)
    arguments = _arguments(launch, args, kwargs)
    operands = [_operand(host) for host in arguments.arrays]
    compiled = compile_kernel(replace(launch, eager=False), arguments, target, options, cache)
    check_writable(compiled.programs, [host._replace(kind="jax") for host in arguments.arrays], compiled.written)
    _check_dtypes(compiled, launch)
    for finding in compiled.findings:
        warn(finding)
    eager = launch.eager or options.simulator
    run = _eagerly(launch, _forgetful(arguments), compiled, options) if eager else _compiled(compiled, target, options)
    report = _report(launch, target, options, compiled, noted, eager)
    made = _callee(launch, compiled, run, report, options, constants_of(arguments.bound))
    return CALLEES.one(made), operands, compiled.result


def _arguments(launch: Launch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    try:
        return Arguments(bind(launch.function, args, kwargs, launch.name), Parameters(launch.function), _see)
    except NkiError as error:
        attach(error, of_function(launch.function.__code__))
        raise


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


def _check_dtypes(compiled: Compiled, launch: Launch) -> None:
    for view in leaves(compiled.result):
        if view.dtype.is_packed:
            raise LaunchError(
                "result.dtype",
                f"JAX has no dtype for {view.dtype}, which {launch.name} returns",
                fix="view the result as uint8 in the kernel",
            )


def _callee(launch: Launch, compiled: Compiled, run: Run, report: Report, options: Options, constants: str) -> Callee:
    views: list[View] = leaves(compiled.result)
    program = compiled.programs[0]
    inputs, outputs = [_shaped(buffer) for buffer in program.inputs], [_shaped(view) for view in views]
    code = launch.function.__code__
    key = key_of(
        "jax",
        ir=compiled.kernel_hash,
        target=report.target,
        options=options,
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


def _compiled(compiled: Compiled, target: Target, options: Options) -> Run:
    """How a compiled kernel runs: on the buffers themselves, but for those that it writes to."""
    views = tuple(leaves(compiled.result))

    def run(arrays: Arrays) -> Any:
        findings: list[Finding] = []
        inputs = [array.copy() if i in compiled.written else array for i, array in enumerate(arrays)]
        storages, executed = run_compiled(compiled, inputs, target, options, findings.append, None, communicator())
        for finding in findings:
            warn(finding)
        return deliver(views, compiled.programs[0], storages, ()), executed, findings

    return run


def _eagerly(launch: Launch, arguments: Arguments, compiled: Compiled, options: Options) -> Run:
    """How a kernel runs under `nki.simulate`: its Python body, on copies of the buffers, whenever XLA calls it."""
    launch = replace(launch, eager=True)

    def run(arrays: Arrays) -> Any:
        feed = iter([array.copy() for array in arrays])
        args, kwargs = arguments.build(lambda host, name: next(feed))  # type: ignore[arg-type,return-value]
        result, report = call(launch, tuple(args), kwargs, {}, options)
        new = [finding for finding in report.findings if finding not in compiled.findings]
        return leaves(compiled.result, result), report.executed, new

    return run


def _forgetful(arguments: Arguments) -> Arguments:
    """The same arguments without the caller's arrays, which may belong to a program that JAX is done with."""
    arguments.bound = {}
    arguments.arrays = [host._replace(original=None) for host in arguments.arrays]
    return arguments


def _report(
    launch: Launch, target: Target, options: Options, compiled: Compiled, noted: tuple[Finding, ...], eager: bool
) -> Report:
    return Report(
        launch.name,
        target.name,
        "eager" if eager else "compiled",
        launch.cores,
        options.matmul,
        options.precise_fp,
        "" if eager else compiled.kernel_hash,
        (*noted, *compiled.findings),
        compiled.programs,
        launch.compile_config.statements() if launch.compile_config else (),
        "" if eager else compiled.origin,
        compiled.doubt,
    )
