"""A kernel against a reference: both run on the same arguments, and outputs and taps are put side by side."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.dtypes import find
from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.core.tensor import View, whole
from nki.driver.call import call
from nki.frontend.results import written_inputs
from nki.frontend.values import bind
from nki.kernel import Kernel
from nki.language.taps import host_taps
from nki.report import NkiWarning, Report
from nki.tools.compare.history import History
from nki.tools.compare.rows import Allow, Row
from nki.tools.compare.sides import Arrays, First, first_difference, left_over, output_rows, tap_rows
from nki.tools.kernel_file import import_file
from nki.tools.output import quiet_stdout
from nki.tools.request import Request
from nki.tools.results import named_arrays
from nki.tools.user_code import kernel_errors


@dataclass(frozen=True, slots=True)
class Reference:
    """A function of NumPy arrays, and the file that it comes from."""

    function: Callable[..., Any]
    path: Path
    shown: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A kernel and its reference."""

    rows: list[Row]
    first: First | None
    report: Report

    @property
    def equal(self) -> bool:
        return not any(row.failed for row in self.rows)


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a run left behind: outputs by name, with the views of the kernel, and taps in order."""

    outputs: Arrays
    views: list[View]
    report: Report
    history: History


def load_reference(text: str, request: Request) -> Reference:
    """The function that ``FILE::FUNCTION`` names; a file that holds the kernel as well is not imported twice.

    Raises:
        UsageError: no such file or function (``compare.reference``), or the file cannot be imported.
    """
    path = reference_path(text)
    kernel = request.launch.function
    if path == Path(kernel.__code__.co_filename).resolve():
        names: Mapping[str, Any] = kernel.__globals__
    else:
        with quiet_stdout(request.as_json):
            names = vars(import_file(path))
    return Reference(reference_in(names, text), path, text)


def reference_path(text: str) -> Path:
    """The file of ``FILE::FUNCTION``, resolved. Raises UsageError ``compare.reference`` if there is none."""
    file, _, name = text.partition("::")
    path = Path(file)
    if not name or not path.is_file():
        problem = f"there is no file {file!r}" if name else f"--reference {text} names no function"
        raise _no_reference(problem, "write FILE::FUNCTION, for example kernels.py::softmax_reference")
    return path.resolve()


def reference_in(names: Mapping[str, Any], text: str) -> Callable[..., Any]:
    """The function of ``FILE::FUNCTION`` among the names of its file. Raises UsageError ``compare.reference``."""
    file, _, name = text.partition("::")
    if name not in names:
        raise _no_reference(f"{file} has no {name!r}", "name a function of the file")
    found: Any = names[name]
    if isinstance(found, Kernel) or not callable(found):
        kind = "a kernel" if isinstance(found, Kernel) else f"a {type(found).__name__}"
        raise _no_reference(f"{text} is {kind}", "name a function that computes the outputs with NumPy")
    return found


def compare_with(request: Request, reference: Reference, allow: Allow) -> Comparison:
    """Run both, and compare taps in the order of execution, then outputs."""
    given = _reference_arguments(request, reference)
    ran = _run_kernel(request)
    outputs, taps = _run_reference(request, reference, given, ran)
    tapped = tap_rows(ran.history.taps(), taps, allow)
    results = output_rows([(name, array, outputs[name]) for name, array in ran.outputs], allow)
    rows = [*tapped, *left_over(ran.history.taps(), taps), *results]
    return Comparison(rows, first_difference(ran.history, tapped, results, ran.views), ran.report)


def copied(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments whose arrays may be written to."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in kwargs.items()}


def written_arguments(report: Report, kwargs: Mapping[str, Any]) -> list[tuple[str, View]]:
    """Names and tensors of the arguments that the kernel wrote to and did not return."""
    program = report.programs[0]
    returned = {view.buffer.id for view in program.outputs}
    changed = [program.inputs[at] for at in sorted(written_inputs(report.programs))]
    return [(b.name, whole(b)) for b in changed if b.id not in returned and b.name in kwargs]


# --- running


def _run_kernel(request: Request) -> _Ran:
    kwargs, history = copied(request.kwargs), History()
    launch = replace(request.launch, eager=True)
    with warnings.catch_warnings(), request.user_code():
        warnings.simplefilter("ignore", NkiWarning)
        result, report = call(launch, (), kwargs, {}, request.options, history)
    changed = written_arguments(report, kwargs)
    outputs = [*named_arrays(result), *((f"argument {name}", kwargs[name]) for name, _ in changed)]
    return _Ran(outputs, [*report.programs[0].outputs, *(view for _, view in changed)], report, history)


def _reference_arguments(request: Request, reference: Reference) -> dict[str, Any]:
    """The kernel's arguments, with its defaults for those that the reference takes too."""
    given = copied(request.kwargs)
    taken = inspect.signature(reference.function).parameters
    for name, value in bind(request.launch.function, (), request.kwargs, request.launch.name).items():
        if name not in given and name in taken:
            given[name] = value
    check_takes(reference.function, given, reference.shown)
    return given


def check_takes(function: Callable[..., Any], given: Mapping[str, Any], shown: str) -> None:
    """Raise UsageError ``compare.arguments`` unless a reference takes these arguments."""
    try:
        inspect.signature(function).bind(**given)
    except TypeError as problem:
        raise UsageError(
            "compare.arguments",
            f"{shown} was called with {', '.join(given) or 'nothing'}: {problem}",
            rule="the reference takes the arguments that the kernel was given, by name",
            fix="give the reference the parameters of the kernel",
            location=UNKNOWN,
        ) from None


def _run_reference(
    request: Request, reference: Reference, given: dict[str, Any], ran: _Ran
) -> tuple[dict[str, np.ndarray], Arrays]:
    taps: Arrays = []
    name = reference.shown.partition("::")[2]
    with (
        quiet_stdout(request.as_json),
        kernel_errors(name, str(reference.path)),
        host_taps(lambda name, array: taps.append((name, array))),
    ):
        result = reference.function(**given)
    outputs = {name: numbers(name, value, reference.shown) for name, value in named_arrays(result)}
    for name, _ in ran.outputs:
        argument = name.removeprefix("argument ")
        if argument != name:
            outputs[name] = given[argument]
    _check_outputs(outputs, ran, reference)
    return outputs, taps


def numbers(name: str, value: Any, shown: str) -> np.ndarray:
    """A result of a reference as an array. Raises UsageError ``compare.outputs`` for what is none of numbers."""
    array = np.asarray(value)
    if array.dtype.kind in "biuf" or find(array.dtype) is not None:
        return array
    raise UsageError(
        "compare.outputs",
        f"{name} of {shown} is a {type(value).__name__}",
        rule="a reference returns arrays of numbers",
        fix="return NumPy arrays",
        location=UNKNOWN,
    )


def _check_outputs(outputs: Mapping[str, np.ndarray], ran: _Ran, reference: Reference) -> None:
    names = [name for name, _ in ran.outputs]
    if set(names) != set(outputs):
        raise UsageError(
            "compare.outputs",
            f"the kernel has {', '.join(names) or 'no result'}; {reference.shown} has "
            f"{', '.join(outputs) or 'no result'}",
            rule="a reference returns what the kernel returns, in the same tuple or dictionary",
            fix="return the same arrays from the reference",
            location=UNKNOWN,
        )


def _no_reference(message: str, fix: str) -> UsageError:
    return UsageError(
        "compare.reference",
        message,
        rule="a reference is a Python function, named FILE::FUNCTION",
        fix=fix,
        location=UNKNOWN,
    )
